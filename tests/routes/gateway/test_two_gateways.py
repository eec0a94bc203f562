"""Two gateways on one PostgreSQL and one Valkey: what one learns the other knows, and either may die."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from django.utils import timezone

from kvadmin.models import Team
from routes.models import Business, Route, Target
from tests.routes.usage.support import clear, rows
from tests.support.gateway_process import GatewayProcess, issue, upstream_thread, wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def business() -> Iterator[Business]:
    with upstream_thread() as engine:
        route = Route.objects.create(name="qwen3-8b")
        Target.objects.create(route=route, base_url=engine.url)
        yield Business.objects.create(team=Team.objects.create(name="team"), name="shop")
    clear()


@pytest.fixture
def gateways(tmp_path, business) -> Iterator[list[GatewayProcess]]:
    made = []
    for number in range(2):
        home = tmp_path / f"home{number}"
        home.mkdir()
        made.append(GatewayProcess(home))
    try:
        for one in made:
            one.start()
        yield made
    finally:
        for one in made:
            if one.process and one.process.poll() is None:
                one.stop()


def test_a_key_is_known_and_refused_by_both(gateways, business):
    key, text = issue(business)
    wait_for(lambda: all(one.chat(text).status_code == 200 for one in gateways))
    key.revoked_at = timezone.now()
    key.save()
    wait_for(lambda: all(one.chat(text).status_code == 401 for one in gateways))
    assert {one.chat(text).json()["error"]["code"] for one in gateways} == {"key_revoked"}


def test_either_may_die(gateways, business):
    _, text = issue(business, requests_per_minute=12, concurrent=4)
    wait_for(lambda: all(one.get("/readyz").status_code == 200 for one in gateways))
    first, second = gateways
    answers = [one.chat(text) for one in gateways for _n in range(3)]
    first.stop(signal.SIGKILL)
    answers += [second.chat(text) for _n in range(3)]
    # what the dead one had leased of this minute stays taken, and nothing is granted twice
    assert [one.status_code for one in answers].count(200) <= 12
    assert answers[-1].status_code in {200, 429}
    first.start()
    second.stop(signal.SIGKILL)
    answers += [first.chat(text) for _n in range(12)]
    statuses = [one.status_code for one in answers]
    assert set(statuses) <= {200, 429}
    assert statuses.count(200) <= 12
    second.start()
    ids = {one.headers["x-request-id"] for one in answers}
    found = wait_for(lambda: _recorded(ids))
    assert len(found) == len(ids)


def _recorded(ids: set[str]) -> list[str]:
    found = [row["id"] for row in rows("SELECT request_id::text AS id FROM routes_usage") if row["id"] in ids]
    return found if len(found) >= len(ids) else []
