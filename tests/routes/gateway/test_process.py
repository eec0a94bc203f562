"""The gateway's process with real PostgreSQL and Valkey: a key in the database, a request, a usage row."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from django.utils import timezone

from kvadmin.models import Team
from routes.models import Business, Route, Target
from tests.routes.usage.support import clear, rows
from tests.support.gateway_process import GatewayProcess, issue, upstream_thread, wait_for
from tests.support.upstream import Upstream, stream, whole

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def business() -> Iterator[Business]:
    yield Business.objects.create(team=Team.objects.create(name="team"), name="shop")
    clear()


@pytest.fixture
def engine() -> Iterator[Upstream]:
    with upstream_thread() as found:
        yield found


@pytest.fixture
def route(engine: Upstream) -> Route:
    made = Route.objects.create(name="qwen3-8b", aliases=["gpt-4o"], max_tokens=1000)
    Target.objects.create(route=made, base_url=f"{engine.url}/v1", api_key="sk-engine", model="the/target")
    return made


@pytest.fixture
def start(tmp_path, business) -> Iterator:
    # they end before what they stand on is removed
    running: list[GatewayProcess] = []

    def begin(number: int = 0, **values) -> GatewayProcess:
        home = tmp_path / f"home{number}"
        home.mkdir(exist_ok=True)
        running.append(GatewayProcess(home, **values).start())
        return running[-1]

    yield begin
    for gateway in running:
        if gateway.process and gateway.process.poll() is None:
            gateway.stop()


def usage() -> list[dict]:
    return rows("SELECT * FROM routes_usage ORDER BY at")


def test_a_key_from_the_database_is_served_and_billed(start, business, route, engine):
    key, text = issue(business)
    gateway = start()
    answer = gateway.chat(text, model="gpt-4o")
    assert answer.status_code == 200
    assert answer.json()["model"] == "gpt-4o"
    call = engine.calls[0]
    assert (call.path, call.json["model"]) == ("/v1/chat/completions", "the/target")
    assert call.headers["authorization"] == "Bearer sk-engine"
    (row,) = wait_for(usage)
    assert str(row["request_id"]) == answer.headers["x-request-id"]
    assert (row["key_id"], row["business_id"], row["route_id"]) == (key.id, business.id, route.id)
    assert (row["prompt_tokens"], row["completion_tokens"], row["tokens_source"]) == (7, 3, "engine")
    key.refresh_from_db()
    assert key.last_used_at is not None
    line = next(line for line in gateway.log.read_text().splitlines() if '"event":"request"' in line)
    assert json.loads(line)["request_id"] == answer.headers["x-request-id"]
    assert text not in gateway.log.read_text()
    page = httpx.get(f"{gateway.url}/metrics").text
    assert 'kvadmin_gateway_requests_total{route="qwen3-8b",status="200",layer=""} 1' in page
    assert httpx.get(f"{gateway.url}/readyz").json()["checks"]["limits"] == "shared"


def test_changes_are_followed_at_once(start, business, route, engine):
    gateway = start()
    key, text = issue(business)
    wait_for(lambda: gateway.chat(text).status_code == 200, 2)
    key.revoked_at = timezone.now()
    key.save()
    wait_for(lambda: gateway.chat(text).status_code == 401, 2)
    assert gateway.chat(text).json()["error"]["code"] == "key_revoked"
    _, other = issue(business, "other", models=["qwen3-8b"])
    wait_for(lambda: gateway.chat(other).status_code == 200, 2)
    Route.objects.filter(pk=route.pk).update(enabled=False)
    wait_for(lambda: gateway.chat(other).status_code == 503, 2)
    business.delete()
    wait_for(lambda: gateway.chat(other).status_code == 401, 2)
    # nothing is left that could say more of the one or of the other
    for secret in (text, other):
        assert gateway.chat(secret).json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("workers", [1, 2])
def test_limits_hold_over_workers_and_gateways(start, business, route, engine, workers):
    _, text = issue(business, requests_per_minute=10)
    gateways = [start(number, workers=workers) for number in range(2)]
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda number: gateways[number % 2].chat(text), range(50)))
    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(200), statuses.count(429)) == (10, 40)
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert int(refused.headers["retry-after"]) >= 1
    wait_for(lambda: len(usage()) == 50)


def test_usage_outlives_a_kill(start, business, route, engine):
    _, text = issue(business)
    gateway = start()
    for _ in range(5):
        assert gateway.chat(text).status_code == 200
    gateway.stop(signal.SIGKILL)
    start()
    wait_for(lambda: len(usage()) == 5)


def test_a_stop_finishes_what_has_begun(start, business, route, engine):
    engine.answer = stream(*"abcdefgh", pause_s=0.1)
    _, text = issue(business)
    gateway = start()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(gateway.chat, text, stream=True)
        wait_for(lambda: engine.calls)
        assert gateway.stop() == 0
        assert answer.result().text.endswith("data: [DONE]\n\n")
    # shipped by the drain, not by a gateway that comes later
    assert len(usage()) == 1


def test_a_worker_that_dies_is_replaced(start, business, route, engine):
    _, text = issue(business)
    gateway = start(workers=2)
    children = Path(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children")
    first, second = map(int, children.read_text().split())
    os.kill(first, signal.SIGKILL)

    def replaced() -> bool:
        now = set(map(int, children.read_text().split()))
        return len(now) == 2 and first not in now and second in now

    wait_for(replaced)
    wait_for(lambda: all(gateway.chat(text).status_code == 200 for _ in range(10)))


def test_a_worker_takes_no_connection_before_it_knows_its_keys(start, business, route, engine):
    """The others on its port answer as they did: also while a replaced one cannot ask the database."""
    _, text = issue(business)
    gateway = start(workers=2)
    # new connections are spread over the workers, and none is told that keys are not known yet
    assert [gateway.chat(text).status_code for _ in range(40)] == [200] * 40
    children = Path(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children")
    first, second = map(int, children.read_text().split())
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: str(first) not in children.read_text())
    statuses = []
    while len(children.read_text().split()) < 2 or len(statuses) < 60:
        statuses.append(gateway.chat(text).status_code)
    assert set(statuses) == {200}
    assert str(second) in children.read_text()


def test_workers_end_with_a_parent_that_was_killed(start, business, route, engine):
    gateway = start(workers=2)
    children = Path(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children")
    workers = [Path("/proc", pid) for pid in children.read_text().split()]
    assert len(workers) == 2
    gateway.stop(signal.SIGKILL)
    wait_for(lambda: not any(worker.exists() for worker in workers))


def test_without_a_database_nothing_is_said_to_be_invalid(start, business, route, engine, tmp_path):
    home = tmp_path / "alone"
    home.mkdir()
    gateway = GatewayProcess(home, DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    gateway.begin()
    try:
        answer = wait_for(lambda: gateway.chat("sk-kv-anything"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "gateway_not_ready")
        assert httpx.get(f"{gateway.url}/readyz").status_code == 503
    finally:
        gateway.stop()


def test_an_engines_answer_without_usage_is_estimated(start, business, route, engine):
    engine.answer = whole({"choices": [], "model": "the/target"})
    _, text = issue(business)
    gateway = start()
    assert gateway.chat(text).status_code == 200
    (row,) = wait_for(usage)
    assert row["tokens_source"] == "estimated"
    assert row["prompt_tokens"] > 0
