from __future__ import annotations

import random
from datetime import timedelta

import pytest
from django.db import connection

from routes.tasks.rollup import keep_usage_partitions, roll_up_usage
from routes.usage import rollup, tables
from routes.usage.buckets import BOUNDS
from routes.usage.rollup import roll_up
from routes.usage.sums import KEYS
from routes.usage.tables import RAW, drop_old, ensure_ahead, existing
from tests.routes.usage.support import NOON, at, rows, store, usage

pytestmark = pytest.mark.django_db

DAY = 86_400


def level(name: str) -> list[dict]:
    return rows(f"SELECT * FROM routes_usage_{name} ORDER BY at, {KEYS}")


def test_a_minute_sums_its_requests():
    store(
        usage(1, prompt_tokens=10, cached_tokens=4, completion_tokens=5, streamed=True, first_byte_s=0.1),
        usage(59.9, prompt_tokens=1, tokens_source="estimated", total_s=1000),
        usage(30, status=429, error_layer="gateway", error_code="rate_limit_exceeded", total_s=0.001),
        usage(31, status=429, error_layer="gateway", error_code="rate_limit_exceeded"),
        usage(32, status=400, error_layer="caller", error_code="invalid"),
        usage(33, status=502, error_layer="engine", error_code="upstream_cut", tokens_source="partial"),
    )
    roll_up(at(70))
    (row,) = level("minute")
    assert row["at"] == NOON
    assert (row["requests"], row["streamed"]) == (6, 1)
    assert (row["failed_caller"], row["failed_gateway"], row["failed_engine"]) == (1, 2, 1)
    assert (row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"]) == (11, 4, 5)
    assert row["estimated_tokens"] == 1
    assert row["total_s"] == pytest.approx(1000.5)
    # refusals say nothing about how quick answers are
    assert sum(row["latency"]) == 2
    assert row["latency"][BOUNDS.index(0.5) + 1] == 1
    assert row["latency"][BOUNDS.index(600.0) + 1] == 1
    assert sum(row["first_byte"]) == 1
    assert row["codes"] == '{"caller:invalid": 1, "engine:upstream_cut": 1, "gateway:rate_limit_exceeded": 2}'


def test_an_unfinished_minute_waits():
    store(usage(1))
    roll_up(at(64))
    assert level("minute") == []
    roll_up(at(66))
    assert len(level("minute")) == 1


def test_keys_routes_engines_and_models_are_kept_apart():
    store(usage(1), usage(2, key_id=2), usage(3, route_id=2), usage(4, engine_id=2), usage(5, model="other"))
    roll_up(at(70))
    assert [row["requests"] for row in level("minute")] == [1] * 5


def test_what_a_caller_wrote_as_a_model_is_no_kind_of_its_own():
    store(*(usage(n, route_id=None, engine_id=None, model=f"made up {n}", status=404) for n in range(5)))
    roll_up(at(70))
    (row,) = level("minute")
    assert (row["model"], row["route_id"], row["engine_id"], row["requests"]) == ("", 0, 0, 5)


def test_rows_that_come_late_are_counted_once(monkeypatch):
    store(usage(1), usage(2, prompt_tokens=5))
    roll_up(at(3 * DAY))
    assert [row["requests"] for row in level("day")] == [1 + 1]
    # a request that began then has ended only now
    store(usage(3, prompt_tokens=7), usage(4000))
    roll_up(at(3 * DAY + 60))
    for name in ("minute", "hour", "day"):
        found = level(name)
        assert sum(row["requests"] for row in found) == 4, name
        assert sum(row["prompt_tokens"] for row in found) == 12, name
    before = {name: level(name) for name in ("minute", "hour", "day")}
    roll_up(at(3 * DAY + 120))
    assert {name: level(name) for name in ("minute", "hour", "day")} == before


def test_every_level_has_the_same_sums():
    made = random.Random(7)
    store(
        *(
            usage(
                made.uniform(0, 2 * DAY),
                key_id=made.randint(1, 3),
                engine_id=made.choice([1, 2, None]),
                prompt_tokens=made.randint(0, 5000),
                completion_tokens=made.randint(0, 500),
                total_s=made.expovariate(1),
                first_byte_s=made.expovariate(5),
                error_layer=made.choice(["", "", "engine", "gateway"]),
                error_code=made.choice(["", "a", "b"]),
            )
            for _n in range(150)
        )
    )
    roll_up(at(4 * DAY))
    sums = "sum(requests), sum(prompt_tokens), sum(completion_tokens), round(sum(total_s)::numeric, 6)"
    buckets = "(SELECT sum(n) FROM unnest(engines_counts_sum(latency)) AS n)"
    found = [
        rows(f"SELECT {sums}, {buckets} AS counted FROM routes_usage_{name}")
        for name in ("minute", "hour", "day")
    ]
    assert found[0] == found[1] == found[2]
    codes = (
        "SELECT kind, sum(n::int) AS n FROM routes_usage_{}, jsonb_each_text(codes) AS c (kind, n) GROUP BY 1"
    )
    kinds = [
        sorted((row["kind"], row["n"]) for row in rows(codes.format(name))) for name in ("minute", "day")
    ]
    assert kinds[0] == kinds[1]
    direct = rows(
        "SELECT error_layer || ':' || error_code AS kind, count(*) AS n FROM routes_usage"
        " WHERE error_layer <> '' GROUP BY 1"
    )
    assert kinds[0] == sorted((row["kind"], row["n"]) for row in direct)


def test_a_long_backlog_is_done_in_pieces(monkeypatch):
    monkeypatch.setattr(rollup, "_CHUNK", 3)
    store(*(usage(60 * n) for n in range(10)))
    roll_up(at(700))
    assert len(level("minute")) == 10
    assert rows("SELECT * FROM routes_usage_dirty") == []
    (upto,) = rows("SELECT upto FROM routes_usage_rollup WHERE level = 'minute'")
    assert upto["upto"] == at(660)


def test_lines_of_the_present_minute_stay():
    store(usage(1), usage(61))
    roll_up(at(70))
    assert [row["minute"] for row in rows("SELECT * FROM routes_usage_dirty")] == [at(60)]


def test_partitions_are_made_ahead_and_dropped_when_old(settings):
    settings.KVADMIN_KEEP_USAGE_D = 30
    ensure_ahead(NOON)
    assert ensure_ahead(NOON) == 0
    assert {"routes_usage_20260504", "routes_usage_20260507"} <= existing(RAW)
    assert drop_old(NOON + timedelta(days=30)) == []
    dropped = drop_old(NOON + timedelta(days=31))
    assert "routes_usage_20260504" in dropped
    # minutes stay as long as hours may have to be made anew from them
    assert "routes_usage_minute_20260504" in dropped
    assert "routes_usage_hour_202605" not in dropped


def test_single_rows_are_dropped_by_size_but_never_todays(settings, monkeypatch):
    store(usage(0), usage(-DAY), usage(-2 * DAY))
    monkeypatch.setattr(tables, "_sizes", lambda: dict.fromkeys(sorted(existing(RAW)), 1 << 30))
    settings.KVADMIN_KEEP_USAGE_GB = 2
    assert drop_old(NOON) == ["routes_usage_20260502"]
    settings.KVADMIN_KEEP_USAGE_GB = 1
    assert drop_old(NOON) == ["routes_usage_20260503"]
    settings.KVADMIN_KEEP_USAGE_GB = 0
    assert drop_old(NOON) == []
    (raw,) = rows("SELECT upto FROM routes_usage_rollup WHERE level = 'raw'")
    assert raw["upto"] == NOON.replace(hour=0)
    # what was not rolled up yet is not made from nothing
    assert {row["minute"] for row in rows("SELECT * FROM routes_usage_dirty")} == {NOON}


def test_sizes_are_those_of_the_tables():
    store(usage(0))
    sizes = tables._sizes()
    assert sizes["routes_usage_20260504"] > 0


def test_the_tasks_run():
    keep_usage_partitions()
    roll_up_usage()
    with connection.cursor() as cursor:
        cursor.execute("SELECT upto FROM routes_usage_rollup WHERE level = 'day'")
        assert cursor.fetchone()[0] is not None
