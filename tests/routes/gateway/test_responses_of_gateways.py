"""Responses by id with the real processes: two gateways of two workers each, one Valkey, one PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kvadmin.models import Team
from routes.models import Business, Route, Target
from tests.routes.usage.support import clear
from tests.support.gateway_process import GatewayProcess, issue, upstream_thread, wait_for
from tests.support.own_valkey import OwnValkey
from tests.support.upstream import Call, whole

pytestmark = pytest.mark.django_db(transaction=True)


async def answer(call: Call) -> None:
    id = call.json.get("request_id", "resp_other") if call.body else call.path.split("/")[3]
    await whole({"id": id, "model": "m", "status": "completed", "output": [], "error": None})(call)


@pytest.fixture
def team() -> Iterator[Team]:
    yield Team.objects.create(name="team")
    clear()


@pytest.fixture
def valkey(tmp_path) -> Iterator[OwnValkey]:
    one = OwnValkey(tmp_path)
    yield one
    one.kill()


@pytest.fixture
def gateways(tmp_path, team, valkey) -> Iterator[list[GatewayProcess]]:
    made = []
    try:
        for number in range(2):
            home = tmp_path / f"home{number}"
            home.mkdir()
            made.append(GatewayProcess(home, workers=2, VALKEY_URL=valkey.url).start())
        yield made
    finally:
        for one in made:
            one.stop()


def test_a_response_is_found_through_every_worker_of_every_gateway(gateways, valkey, team):
    with upstream_thread(answer) as engine, upstream_thread(answer) as other, ExitStack() as callers:
        route = Route.objects.create(name="m")
        for one in (engine, other):
            Target.objects.create(route=route, base_url=one.url)
        _, text = issue(Business.objects.create(team=team, name="shop"))
        _, foreign = issue(Business.objects.create(team=team, name="bank"))
        body = {"model": "m", "input": "hi", "request_id": "resp_shared"}
        wait_for(lambda: all(one.chat(text, model="m").status_code == 200 for one in gateways))

        workers = [(one, worker) for one in gateways for worker in one.workers()]
        own = [callers.enter_context(one.caller_of(worker, text)) for one, worker in workers]
        others = [callers.enter_context(one.caller_of(worker, foreign)) for one, worker in workers]
        # a Valkey that has just begun is not believed that nobody made a response
        wait_for(lambda: own[0].get("/v1/responses/resp_none").status_code == 404)

        calls = len(engine.calls) + len(other.calls)
        assert own[0].post("/v1/responses", json=body).status_code == 200
        (maker,) = (one for one in (engine, other) if one.calls and one.calls[-1].path == "/v1/responses")
        goes_on = {"model": "m", "input": "and?", "previous_response_id": "resp_shared"}
        for caller in own[1:]:
            assert caller.get("/v1/responses/resp_shared").status_code == 200
            assert caller.post("/v1/responses", json=goes_on).status_code == 200
        made = [call.path for call in maker.calls if call.path.startswith("/v1/responses")]
        assert made == ["/v1/responses", *["/v1/responses/resp_shared", "/v1/responses"] * 3]
        assert len(engine.calls) + len(other.calls) == calls + 7
        for caller in others:
            assert caller.get("/v1/responses/resp_shared").json()["error"]["code"] == "response_not_found"
            refused = caller.post("/v1/responses", json=goes_on)
            assert refused.json()["error"]["code"] == "response_not_found"
            refused = caller.post("/v1/responses", json=body)
            assert refused.json()["error"]["code"] == "response_id_taken"
        assert len(engine.calls) + len(other.calls) == calls + 7

        assert "kvadmin_gateway_responses_shared 1\n" in gateways[0].get("/metrics").text
        valkey.kill()
        wait_for(lambda: "alone" in gateways[0].get("/readyz").json()["checks"]["responses"])
        wait_for(lambda: "kvadmin_gateway_responses_shared 0\n" in gateways[0].get("/metrics").text)
        for caller in own:
            assert caller.get("/v1/responses/resp_shared").status_code == 200
        undecided = own[0].get("/v1/responses/resp_none")
        assert (undecided.status_code, undecided.json()["error"]["code"]) == (503, "response_undecided")
