from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from routes.usage import read
from routes.usage.read import Scope, by, by_time, errors, month_to_date, total
from routes.usage.rollup import roll_up
from tests.routes.usage.support import NOON, at, store, usage

pytestmark = pytest.mark.django_db

DAY = 86_400


def made_rows(count: int = 120) -> list:
    made = random.Random(3)
    return [
        usage(
            made.uniform(-3 * DAY, 0),
            key_id=made.randint(1, 3),
            business_id=made.randint(1, 2),
            route_id=(route := made.choice([1, 2, None])),
            model=f"model-{route}",
            prompt_tokens=made.randint(0, 1000),
            completion_tokens=made.randint(0, 100),
            total_s=made.expovariate(1),
            error_layer=made.choice(["", "", "", "gateway"]),
            error_code="rate_limit_exceeded",
        )
        for _n in range(count)
    ]


@pytest.mark.parametrize("rolled_up_s", [None, -2.5 * DAY, -DAY - 1000, -90, 0])
def test_sums_are_the_same_however_far_the_rollups_are(rolled_up_s):
    records = made_rows()
    store(*records)
    if rolled_up_s is not None:
        roll_up(at(rolled_up_s))
    for start, end in ((-3 * DAY, 60), (-2 * DAY - 1234, -100), (-4000, -3000), (-1.2 * DAY, -0.3 * DAY)):
        first, last = (
            read._floor(at(start), timedelta(minutes=1)),
            read._ceiling(at(end), timedelta(minutes=1)),
        )
        inside = [one for one in records if first.timestamp() <= one.at < last.timestamp()]
        found = total(Scope(), at(start), at(end))
        assert found.requests == len(inside)
        assert found.tokens == sum(one.prompt_tokens + one.completion_tokens for one in inside)
        assert found.failed == found.failed_gateway == sum(one.error_layer != "" for one in inside)
        assert sum(found.latency) == found.requests - found.failed
        mine = [one for one in inside if one.key_id == 2]
        assert total(Scope(key=2), at(start), at(end)).requests == len(mine)
        for step in ("minute", "hour", "day"):
            if step == "minute" and last - first > timedelta(hours=2):
                continue
            series = by_time(Scope(key=2), at(start), at(end), step)
            size = read._SIZES[step]
            for one in series:
                want = [row for row in records if one.at.timestamp() <= row.at < (one.at + size).timestamp()]
                assert one.requests == sum(row.key_id == 2 for row in want)


def test_by_model_the_most_first():
    store(usage(1), usage(2), usage(3, model="other", route_id=2), usage(4, model="made up", route_id=None))
    found = by("model", Scope(), at(0), at(60))
    assert [(one.of, one.requests) for one in found] == [("qwen3-8b", 2), ("", 1), ("other", 1)]
    assert [one.of for one in by("key_id", Scope(), at(0), at(60))] == [1]


def test_scopes_narrow_down():
    store(usage(1), usage(2, key_id=2, business_id=2, team_id=2, route_id=2, engine_id=2))
    for scope, count in (
        (Scope(), 2),
        (Scope(team=2), 1),
        (Scope(business=1), 1),
        (Scope(route=2, key=2), 1),
        (Scope(route=2, key=1), 0),
        (Scope(engine=2), 1),
        (Scope(keys=[1, 2, 3]), 2),
        (Scope(keys=[]), 0),
    ):
        assert total(scope, at(0), at(60)).requests == count, scope


def test_errors_by_kind():
    refused = {"error_layer": "gateway", "error_code": "rate_limit_exceeded"}
    store(usage(1, **refused), usage(2, **refused), usage(70, error_layer="engine", error_code="a:b"))
    roll_up(at(68))
    found = errors(Scope(), at(0), at(120))
    assert [(one.layer, one.code, one.requests) for one in found] == [
        ("gateway", "rate_limit_exceeded", 2),
        ("engine", "a:b", 1),
    ]


def test_percentiles_are_those_of_the_bucket_they_lie_in():
    store(*(usage(n, total_s=0.2) for n in range(90)), *(usage(n, total_s=20) for n in range(10)))
    found = total(Scope(), at(0), at(120))
    median, late = found.latency_at(0.5), found.latency_at(0.99)
    assert (median.low, median.high) == (0.15, 0.25)
    assert (late.low, late.high) == (15, 30)
    assert found.mean_s == pytest.approx(2.18)
    assert found.first_byte_at(0.5) is None


def test_nothing_is_no_number_of_anything():
    found = total(Scope(), at(0), at(60))
    assert (found.requests, found.tokens, found.failed) == (0, 0, 0)
    assert found.mean_s is None
    assert found.latency_at(0.5) is None
    assert [one.requests for one in by_time(Scope(), at(0), at(180), "minute")] == [0, 0, 0]
    assert by("model", Scope(), at(0), at(60)) == []


def test_the_month_to_date():
    store(usage(0, prompt_tokens=5), usage(-3.6 * DAY, prompt_tokens=100))
    assert month_to_date(Scope(key=1), at(60)).tokens == 5


def test_the_coarsest_rollups_are_read():
    noon = NOON
    uptos = {
        "minute": noon,
        "hour": noon.replace(minute=0),
        "day": datetime(2026, 5, 4, tzinfo=UTC),
    }
    start = datetime(2026, 5, 1, 22, 30, tzinfo=UTC)
    found = list(read._segments(start, noon + timedelta(seconds=30), None, uptos))
    assert [level for level, _from, _to in found] == ["minute", "hour", "day", "hour", "raw"]
    assert found[0][1] == start
    assert all(one[2] == other[1] for one, other in pairwise(found))
    assert found[-1][2] == noon + timedelta(minutes=1)
    by_hour = list(read._segments(start, noon, "hour", uptos))
    assert [level for level, _from, _to in by_hour] == ["minute", "hour"]
