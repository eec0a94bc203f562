from __future__ import annotations

from datetime import timedelta

import pytest

from engines.metrics.window import POINTS, RANGES, Keep, Source, window
from tests.engines.metrics.readings import NOON

KEEP = Keep(raw=timedelta(hours=48), minutes=timedelta(days=30))


def of(span: timedelta, interval: float = 5, ago: timedelta = timedelta()):
    end = NOON - ago
    return window(end - span, end, now=NOON, interval_s=interval, keep=KEEP)


@pytest.mark.parametrize(
    ("name", "source", "step"),
    [
        ("15m", Source.RAW, 5),
        ("3h", Source.MINUTE, 60),
        ("24h", Source.MINUTE, 120),
        ("7d", Source.MINUTE, 900),
        ("30d", Source.HOUR, 3600),
    ],
)
def test_each_range_has_its_table(name, source, step):
    keep = Keep(raw=timedelta(hours=48), minutes=timedelta(days=29))
    found = window(NOON - RANGES[name], NOON, now=NOON, interval_s=5, keep=keep)
    assert (found.source, found.step_s) == (source, step)


@pytest.mark.parametrize("interval", [1, 5, 15, 60])
@pytest.mark.parametrize("minutes", [1, 15, 60, 180, 24 * 60, 7 * 24 * 60, 30 * 24 * 60, 400 * 24 * 60])
def test_no_window_has_more_points_than_a_chart_takes(interval, minutes):
    span = timedelta(minutes=minutes)
    found = of(span, interval)
    assert span.total_seconds() / found.step_s <= POINTS
    assert span.total_seconds() / found.for_buckets().step_s <= POINTS


def test_what_raw_no_longer_has_comes_from_minutes_and_then_from_hours():
    quarter = timedelta(minutes=15)
    assert of(quarter, ago=timedelta(hours=47)).source is Source.RAW
    assert of(quarter, ago=timedelta(hours=48)).source is Source.MINUTE
    assert of(quarter, ago=timedelta(days=31)).source is Source.HOUR


def test_buckets_are_never_read_from_raw():
    assert of(timedelta(minutes=15)).for_buckets().source is Source.MINUTE
    assert of(timedelta(days=7)).for_buckets().source is Source.HOUR
