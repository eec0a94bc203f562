from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines.metrics.current import NO_READING, current_readings, sparklines
from engines.metrics.rollup import roll_up
from engines.metrics.store import Sample, SampleStore
from tests.engines.metrics.readings import histogram

pytestmark = pytest.mark.django_db


def ago(seconds: float, engine_id: int = 1, histograms: dict | None = None, **values: float) -> Sample:
    return Sample(engine_id, timezone.now() - timedelta(seconds=seconds), values, histograms or {})


def write(*samples: Sample) -> None:
    SampleStore().write(samples)


def test_the_newest_reading_is_current():
    write(ago(10, kv_usage_ratio=0.1), ago(5, kv_usage_ratio=0.76, requests_running=14, requests_waiting=0))
    reading = current_readings([1])[1]
    assert (reading.kv_usage, reading.running, reading.waiting) == (0.76, 14, 0)
    assert reading.taken_at is not None


def test_what_is_not_known_is_none_not_zero():
    write(ago(5, requests_running=3))
    reading = current_readings([1, 2])
    assert reading[1].kv_usage is None
    assert reading[1].generation_tokens_per_s is None
    assert reading[1].inter_token_p50 is None
    assert reading[2] is NO_READING
    assert current_readings([]) == {}


def test_an_old_reading_is_not_current(settings):
    settings.KVADMIN_POLL_SECONDS_MANY = 15
    write(ago(49, kv_usage_ratio=0.5))
    assert current_readings([1])[1] is NO_READING


def test_rates_and_percentiles_are_of_the_last_minute():
    now = timezone.now().replace(second=0, microsecond=0)
    edge = (timezone.now() - now).total_seconds()

    def before(seconds: float, **more) -> Sample:
        return ago(edge + seconds, **more)

    write(
        before(
            119,
            histograms={"inter_token_latency": histogram(0, 0, 0, 0)},
            prompt_tokens=0,
            generation_tokens=0,
            prefix_cache_queries=0,
            prefix_cache_hits=0,
        ),
        before(
            70,
            histograms={"inter_token_latency": histogram(0, 10, 10, 10)},
            prompt_tokens=490,
            generation_tokens=98,
            prefix_cache_queries=100,
            prefix_cache_hits=71,
        ),
        ago(1, kv_usage_ratio=0.5),
    )
    roll_up(now + timedelta(seconds=20))
    reading = current_readings([1])[1]
    assert reading.prompt_tokens_per_s == pytest.approx(10, rel=0.01)
    assert reading.generation_tokens_per_s == pytest.approx(2, rel=0.01)
    assert reading.prefix_hit_rate == pytest.approx(0.71)
    assert reading.inter_token_p50 == pytest.approx(0.3)


def test_a_sparkline_has_a_place_for_every_minute():
    now = timezone.now().replace(second=0, microsecond=0)
    write(
        *(Sample(1, now - timedelta(minutes=m, seconds=-5), {"kv_usage_ratio": m / 100}) for m in (1, 2, 5))
    )
    roll_up(now + timedelta(seconds=20))
    line = sparklines([1, 2], minutes=10)
    assert line[1] == [None, None, None, None, None, 0.05, None, None, 0.02, 0.01]
    assert line[2] == [None] * 10
    assert sparklines([]) == {}


def test_many_engines_take_no_more_queries_than_one():
    write(*(ago(2, engine_id, kv_usage_ratio=0.5) for engine_id in range(1, 41)))
    with CaptureQueriesContext(
        connection,
    ) as one:
        current_readings([1])
        sparklines([1])
    with CaptureQueriesContext(connection) as many:
        current_readings(range(1, 41))
        sparklines(list(range(1, 41)))
    assert len(many) == len(one)
