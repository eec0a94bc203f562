from __future__ import annotations

import math
import random
from datetime import timedelta

import pytest
from django.db import connection

from engines.metrics.rollup import roll_up
from engines.metrics.series import percentiles, scalars, window_percentile
from engines.metrics.window import Source, Window
from tests.engines.metrics.readings import BOUNDS, NOON, at, histogram, reading, write
from tests.engines.metrics.test_quantile import histogram_quantile

pytestmark = pytest.mark.django_db


def ms(seconds: float) -> int:
    return round(at(seconds).timestamp() * 1000)


def raw(start: float, end: float, step: float = 5) -> Window:
    return Window(at(start), at(end), Source.RAW, step)


def minute(start: float, end: float, step: float = 60) -> Window:
    return Window(at(start), at(end), Source.MINUTE, step)


def hour(start: float, end: float, step: float = 3600) -> Window:
    return Window(at(start), at(end), Source.HOUR, step)


def test_raw_readings_are_shown_as_they_are():
    write(*(reading(1, s, kv_usage_ratio=s / 100) for s in (0, 5, 10)))
    series = scalars(1, raw(0, 60), gauges=["kv_usage_ratio"])
    assert series.times == [ms(0), ms(5), ms(10)]
    assert series.gauges["kv_usage_ratio"] == [0, 0.05, 0.1]


def test_a_gap_in_raw_readings_breaks_the_line():
    write(*(reading(1, s, kv_usage_ratio=0.5) for s in (0, 5, 10, 60, 65)))
    series = scalars(1, raw(0, 70), gauges=["kv_usage_ratio"])
    assert series.gauges["kv_usage_ratio"] == [0.5, 0.5, 0.5, None, 0.5, 0.5]
    assert series.times[3] == ms(10) + 1


def test_one_poll_missed_is_no_gap():
    write(*(reading(1, s, kv_usage_ratio=0.5) for s in (0, 5, 15)))
    assert None not in scalars(1, raw(0, 70), gauges=["kv_usage_ratio"]).gauges["kv_usage_ratio"]


def test_raw_counters_become_rates_also_over_a_restart():
    write(*(reading(1, s, prompt_tokens=v) for s, v in ((-5, 50), (0, 100), (5, 200), (10, 20))))
    series = scalars(1, raw(0, 60), counters=["prompt_tokens"])
    assert series.rates["prompt_tokens"] == [10, 20, 4]
    assert series.increases["prompt_tokens"] == [50, 100, 20]


def test_minutes_without_a_row_are_none():
    write(reading(1, 0, kv_usage_ratio=0.2), reading(1, 180, kv_usage_ratio=0.4))
    roll_up(at(3600))
    series = scalars(1, minute(0, 600), gauges=["kv_usage_ratio"])
    # the last minutes may not be rolled up yet: they are no gap
    assert series.gauges["kv_usage_ratio"] == [0.2, None, None, 0.4, None, None, None]
    assert series.times == [ms(30 + 60 * n) for n in range(7)]


def test_steps_weigh_their_minutes_and_keep_the_peak():
    write(
        *(reading(1, s, kv_usage_ratio=0.2) for s in (0, 20, 40)),
        reading(1, 60, kv_usage_ratio=1.0),
    )
    roll_up(at(3600))
    series = scalars(1, minute(0, 120, 120), gauges=["kv_usage_ratio"])
    assert series.gauges["kv_usage_ratio"] == [pytest.approx(0.4)]
    assert series.peaks["kv_usage_ratio"] == [1.0]


def test_rates_of_rollups_are_over_the_time_they_grew_in():
    write(
        reading(1, 0, prompt_tokens=0), reading(1, 30, prompt_tokens=300), reading(1, 600, prompt_tokens=6000)
    )
    roll_up(at(3600))
    series = scalars(1, minute(0, 660), counters=["prompt_tokens"])
    assert series.rates["prompt_tokens"][0] == 10
    assert series.rates["prompt_tokens"][1:10] == [None] * 9
    assert series.rates["prompt_tokens"][10] == 10  # no spike behind a gap


def test_hours_end_in_minutes_that_are_not_an_hour_yet():
    write(*(reading(1, 60 * m, kv_usage_ratio=0.25 if m < 60 else 0.75) for m in range(90)))
    roll_up(at(91 * 60))
    series = scalars(1, hour(0, 2 * 3600), gauges=["kv_usage_ratio"])
    assert series.gauges["kv_usage_ratio"] == [0.25, 0.75]


def test_a_short_window_ends_with_the_newest_reading():
    write(*(reading(1, s, kv_usage_ratio=s / 1000) for s in range(0, 200, 5)))
    roll_up(at(130))
    series = scalars(1, minute(0, 197), gauges=["kv_usage_ratio"])
    assert series.times == [ms(30), ms(90), ms(195)]
    assert series.gauges["kv_usage_ratio"][-1] == 0.195


def test_an_unknown_metric_is_refused():
    with pytest.raises(ValueError, match="not kept"):
        scalars(1, raw(0, 60), gauges=["kv_usage_ratio; DROP TABLE"])
    with pytest.raises(ValueError, match="not kept"):
        percentiles(1, minute(0, 60), "nothing", [0.5])


def _traffic(hours: float, seed: int = 3) -> tuple[list, list[list[int]]]:
    """Readings with buckets every minute, and what the buckets were at each minute's end."""
    chance = random.Random(seed)
    counts = [0] * len(BOUNDS)
    readings, states = [reading(1, -1, {"ttft": histogram(*counts)})], [list(counts)]
    for number in range(int(hours * 60)):
        for _ in range(chance.randrange(6)):
            for bound in range(chance.randrange(len(BOUNDS)), len(BOUNDS)):
                counts[bound] += 1
        readings.append(reading(1, 60 * number + 57, {"ttft": histogram(*counts)}))
        states.append(list(counts))
    return readings, states


@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
def test_percentiles_of_any_window_equal_prometheus(q):
    """histogram_quantile(q, increase(ttft_bucket[window])): the buckets' difference over the window."""
    readings, states = _traffic(3)
    write(*readings)
    roll_up(at(4 * 3600))
    chance = random.Random(9)
    for _ in range(25):
        first = chance.randrange(0, 170)
        last = chance.randrange(first + 1, 181)
        grown = [b - a for a, b in zip(states[first], states[last], strict=True)]
        found = window_percentile(1, at(60 * first), at(60 * last), "ttft", q)
        expected = histogram_quantile(q, list(zip(BOUNDS, map(float, grown), strict=True)))
        if math.isnan(expected):
            assert found is None
        else:
            assert found.value == pytest.approx(expected)


@pytest.mark.parametrize(("step", "make"), [(60, minute), (300, minute), (3600, hour)])
def test_percentiles_of_each_step_equal_prometheus(step, make):
    readings, states = _traffic(3)
    write(*readings)
    roll_up(at(3 * 3600 + 80))
    found = percentiles(1, make(0, 3 * 3600, step), "ttft", [0.5, 0.95])
    per_step = step // 60
    assert len(found.times) == 180 // per_step
    for place in range(180 // per_step):
        before, after = states[place * per_step], states[(place + 1) * per_step]
        grown = [float(b - a) for a, b in zip(before, after, strict=True)]
        expected = histogram_quantile(0.95, list(zip(BOUNDS, grown, strict=True)))
        got = found.values[0.95][place]
        assert got is None if math.isnan(expected) else got.value == pytest.approx(expected)
        assert found.counts[place] == grown[-1]


def test_a_step_of_two_layouts_counts_the_one_with_more():
    other = (2.0, math.inf)
    write(
        reading(1, 0, {"ttft": histogram(0, 0, 0, 0)}),
        reading(1, 50, {"ttft": histogram(9, 9, 9, 9)}),
        reading(1, 110, {"ttft": histogram(2, 2, bounds=other)}),
    )
    roll_up(at(600))
    found = percentiles(1, minute(0, 300, 300), "ttft", [0.5])
    assert found.counts == [9]
    assert found.values[0.5][0].value == pytest.approx(0.05)


def test_long_ranges_read_no_raw_samples():
    from django.test.utils import CaptureQueriesContext

    write(*(reading(1, 60 * m, kv_usage_ratio=0.5) for m in range(90)))
    roll_up(at(91 * 60))
    window = Window(NOON - timedelta(days=29), at(91 * 60), Source.HOUR, 3600)
    with CaptureQueriesContext(connection) as queries:
        scalars(1, window, gauges=["kv_usage_ratio"])
        percentiles(1, window.for_buckets(), "ttft", [0.5])
    assert not any("engines_sample" in query["sql"] for query in queries)
