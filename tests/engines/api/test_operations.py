"""Operations over the API: list, steps, log, events."""

from __future__ import annotations

import asyncio
import json

import pytest

from engines.api import operations
from engines.choices import OperationKind, OperationState, StepState
from engines.models import OperationLine, OperationStep
from engines.operations.base import FLOWS, Done, Flow, Step
from tests.support.api import Api, assert_problem
from tests.support.factories import EngineFactory, OperationFactory


@pytest.fixture(autouse=True)
def flow(monkeypatch):
    class Probe(Flow):
        kind = "probe"
        steps = [Step("connect", "Connect", lambda context: Done())]

    monkeypatch.setattr("engines.operations.load.load_flows", lambda: None)
    monkeypatch.setitem(FLOWS, "probe", Probe())
    monkeypatch.setitem(FLOWS, "start", Probe())


def make(**kwargs):
    operation = OperationFactory(**kwargs)
    OperationStep.objects.create(operation=operation, position=0, name="connect", state=StepState.RUNNING)
    return operation


def events_of(response) -> list[tuple[str, str | None, dict]]:
    async def collect() -> bytes:
        return b"".join([chunk async for chunk in response.streaming_content])

    found = []
    for block in asyncio.run(collect()).decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("event", "message"), fields.get("id"), json.loads(fields["data"])))
    return found


def test_it_shows_an_operation_with_its_steps(viewer):
    operation = make(requested_by=viewer, parameters={"grace_s": 5}, scratch={"inner": "thing"})
    body = Api(viewer, "read").get(f"operations/{operation.uuid}/").json()
    assert body["uuid"] == str(operation.uuid)
    assert (body["kind"], body["state"], body["active"]) == ("probe", "pending", True)
    assert body["host"] == {"id": operation.host.pk, "name": operation.host.name}
    assert (body["engine"], body["requested_by"]) == (None, "vera")
    assert body["steps"][0]["label"] == "Connect"
    assert body["steps"][0]["state"] == "running"
    assert "scratch" not in body


def test_it_filters(viewer):
    engine = EngineFactory()
    first = make(kind=OperationKind.START, engine=engine, host=engine.host, state=OperationState.FAILED)
    second = make()
    api = Api(viewer)

    def found(query):
        return [row["uuid"] for row in api.get(f"operations/?{query}").json()["results"]]

    assert found("") == [str(second.uuid), str(first.uuid)]
    assert found("kind=start") == [str(first.uuid)]
    assert found("state=pending&state=running") == [str(second.uuid)]
    assert found(f"engine={engine.pk}") == [str(first.uuid)]
    assert found(f"host={second.host_id}") == [str(second.uuid)]
    assert_problem(api.get("operations/?kind=explode"), 400, "invalid", "kind")
    assert_problem(api.get("operations/?host=x"), 400, "invalid", "host")
    assert_problem(api.get("operations/?batch=x"), 400, "invalid", "batch")


def test_a_list_costs_the_same_for_many(viewer, django_assert_num_queries):
    for _ in range(4):
        make()
    api = Api(viewer)
    api.get("operations/")
    with django_assert_num_queries(2):
        assert len(api.get("operations/").json()["results"]) == 4


def test_its_log_comes_in_pages(viewer):
    operation = make()
    OperationLine.objects.bulk_create(OperationLine(operation=operation, text=f"line {n}") for n in range(5))
    api = Api(viewer)
    page = api.get(f"operations/{operation.uuid}/lines/?limit=3").json()
    assert [row["text"] for row in page["results"]] == ["line 0", "line 1", "line 2"]
    assert [row["text"] for row in api.get(page["next"]).json()["results"]] == ["line 3", "line 4"]


def test_it_is_hidden_from_outsiders_and_strangers(outsider):
    operation = make()
    for path in ("operations/", f"operations/{operation.uuid}/", f"operations/{operation.uuid}/events/"):
        assert_problem(Api(outsider).get(path), 403, "permission_denied")
        assert_problem(Api().get(path), 401, "not_signed_in")


def test_one_that_is_not_there(viewer):
    assert_problem(Api(viewer).get(f"operations/{'0' * 8}-0000-0000-0000-{'0' * 12}/"), 404, "not_found")
    assert_problem(Api(viewer).get("operations/7/"), 404, "not_found")


@pytest.mark.django_db(transaction=True)
class TestEvents:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch):
        whole = operations.event_stream
        monkeypatch.setattr(
            operations,
            "event_stream",
            lambda read, cursor, **more: whole(read, cursor, every_s=0.05, limit_s=20, **more),
        )

    def test_it_follows_to_the_end(self, viewer, monkeypatch):
        operation = make()
        OperationLine.objects.create(operation=operation, text="first")
        response = Api(viewer).get(f"operations/{operation.uuid}/events/", Accept="text/event-stream")
        assert response["Content-Type"].startswith("text/event-stream")

        looks = []
        serializer = operations.OperationSerializer

        def look(now):
            looks.append(now.state)
            if len(looks) == 2:
                OperationLine.objects.create(operation=operation, text="last")
                operation.state = OperationState.SUCCEEDED
                operation.save()
            return serializer(now)

        monkeypatch.setattr(operations, "OperationSerializer", look)
        found = events_of(response)
        names = [name for name, _id, _data in found]
        assert names[:2] == ["line", "operation"]
        assert names[-1] == "end"
        assert [data["text"] for name, _id, data in found if name == "line"] == ["first", "last"]
        states = [data["state"] for name, _id, data in found if name == "operation"]
        assert (states[0], states[-1]) == ("pending", "succeeded")

    def test_it_resumes_behind_the_last_line(self, viewer):
        operation = make(state=OperationState.SUCCEEDED)
        first, _second = (OperationLine.objects.create(operation=operation, text=text) for text in "ab")
        response = Api(viewer).get(f"operations/{operation.uuid}/events/", **{"Last-Event-ID": str(first.pk)})
        assert [data["text"] for name, _id, data in events_of(response) if name == "line"] == ["b"]

    @pytest.mark.parametrize("resumed", ["", "x", "-1", "9" * 30, "٣"])
    def test_a_foreign_event_id_begins_at_the_beginning(self, viewer, resumed):
        operation = make(state=OperationState.FAILED)
        OperationLine.objects.create(operation=operation, text="a")
        response = Api(viewer).get(f"operations/{operation.uuid}/events/", **{"Last-Event-ID": resumed})
        assert [name for name, _id, _data in events_of(response)] == ["line", "operation", "end"]

    def test_long_logs_come_whole(self, viewer):
        operation = make(state=OperationState.FAILED)
        OperationLine.objects.bulk_create(
            OperationLine(operation=operation, text=str(number)) for number in range(1203)
        )
        found = events_of(Api(viewer).get(f"operations/{operation.uuid}/events/"))
        assert [data["text"] for name, _id, data in found if name == "line"] == [str(n) for n in range(1203)]

    def test_it_refuses_other_formats_as_a_problem(self, viewer):
        operation = make()
        response = Api(viewer).get(f"operations/{operation.uuid}/events/", Accept="application/json")
        assert_problem(response, 406, "not_acceptable")
