from __future__ import annotations

import random
from datetime import timedelta

import pytest
from django.db import connection

from engines.metrics import rollup
from engines.metrics.rollup import roll_up
from tests.engines.metrics.readings import (
    NOON,
    at,
    column,
    histogram,
    hours,
    minutes,
    reading,
    rows,
    write,
)

pytestmark = pytest.mark.django_db


def test_a_minute_has_average_least_most_and_last():
    write(*(reading(1, s, kv_usage_ratio=v) for s, v in ((0, 0.2), (20, 0.8), (40, 0.5))))
    roll_up(at(80))
    (row,) = minutes(1)
    assert row["minute"] == NOON
    assert row["samples"] == 3
    assert row["kv_usage_ratio_avg"] == pytest.approx(0.5)
    assert (row["kv_usage_ratio_min"], row["kv_usage_ratio_max"]) == (0.2, 0.8)
    assert row["kv_usage_ratio_last"] == 0.5
    assert row["requests_running_avg"] is None


def test_an_unfinished_minute_waits():
    write(reading(1, 0, kv_usage_ratio=0.2))
    roll_up(at(65))
    assert minutes(1) == []
    roll_up(at(71))
    assert len(minutes(1)) == 1


def test_a_minute_without_readings_has_no_row():
    write(reading(1, 0, kv_usage_ratio=0.2), reading(1, 190, kv_usage_ratio=0.3))
    roll_up(at(300))
    assert column(minutes(1), "minute") == [NOON, at(180)]


def test_counters_become_increases():
    write(
        *(reading(1, s, prompt_tokens=v) for s, v in ((0, 100), (30, 150), (60, 190), (90, 190), (120, 200)))
    )
    roll_up(at(200))
    assert column(minutes(1), "prompt_tokens") == [50, 40, 10]
    assert column(minutes(1), "covered_s") == [30, 60, 30]


def test_a_first_reading_is_no_increase():
    write(reading(1, 0, prompt_tokens=1_000_000))
    roll_up(at(80))
    assert column(minutes(1), "prompt_tokens") == [None]
    assert column(minutes(1), "covered_s") == [None]


def test_a_counter_that_fell_began_anew():
    write(*(reading(1, s, prompt_tokens=v) for s, v in ((0, 900), (20, 950), (40, 30), (60, 70))))
    roll_up(at(200))
    assert column(minutes(1), "prompt_tokens") == [80, 40]


def test_a_restarted_engine_that_counted_past_the_old_value_is_known_by_its_start():
    write(
        reading(1, 0, prompt_tokens=100, process_start=1000.0),
        reading(1, 50, prompt_tokens=140, process_start=1049.0),
    )
    roll_up(at(200))
    assert column(minutes(1), "prompt_tokens") == [140]


def test_a_gap_keeps_its_tokens_and_its_time():
    """What was counted while nobody read is in the first minute after, over the time of the whole gap."""
    write(reading(1, 0, prompt_tokens=0), reading(1, 600, prompt_tokens=6000))
    roll_up(at(700))
    assert column(minutes(1), "prompt_tokens") == [None, 6000]
    assert column(minutes(1), "covered_s") == [None, 600]


def test_buckets_become_increases():
    write(
        reading(1, 0, {"ttft": histogram(1, 2, 3, 4)}),
        reading(1, 20),
        reading(1, 55, {"ttft": histogram(1, 4, 6, 8)}),
        reading(1, 115, {"ttft": histogram(2, 5, 7, 9)}),
    )
    roll_up(at(200))
    assert column(minutes(1), "ttft") == [[0, 2, 3, 4], [1, 1, 1, 1]]
    assert column(minutes(1), "ttft_sum") == pytest.approx([1.2, 0.3])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"process_start": 1.0}, {"process_start": 2.0}),  # counted past the old value
        ({}, {}),
    ],
)
def test_buckets_of_a_restarted_engine_count_from_zero(before, after):
    first, second = histogram(5, 6, 7, 8), histogram(6, 7, 8, 9) if before else histogram(0, 7, 8, 9)
    write(reading(1, 0, {"ttft": first}, **before), reading(1, 55, {"ttft": second}, **after))
    roll_up(at(100))
    assert column(minutes(1), "ttft") == [[int(count) for count in second.counts]]


def test_buckets_of_another_layout_count_from_zero():
    other = histogram(3, 9, bounds=(2.0, float("inf")))
    write(reading(1, 0, {"ttft": histogram(5, 6, 7, 8)}), reading(1, 55, {"ttft": other}))
    roll_up(at(100))
    (row,) = minutes(1)
    assert row["ttft"] == [3, 9]
    (layout,) = rows("SELECT bounds FROM engines_bucket_layout WHERE id = %s", row["layouts"][0])
    assert layout["bounds"] == [2.0, float("inf")]


def test_hours_are_whole_and_sum_their_minutes():
    write(
        *(
            reading(
                1,
                60 * m,
                {"ttft": histogram(m, 2 * m, 3 * m, 4 * m)},
                prompt_tokens=10.0 * m,
                kv_usage_ratio=0.5 if m < 60 else 0.9,
            )
            for m in range(90)
        )
    )
    roll_up(at(60 * 100))
    (row,) = hours(1)  # the second hour is not complete
    assert row["hour"] == NOON
    assert row["prompt_tokens"] == 590
    assert row["samples"] == 60
    assert row["kv_usage_ratio_avg"] == pytest.approx(0.5)
    assert row["ttft"] == [59, 118, 177, 236]
    roll_up(at(7300))
    assert column(hours(1), "prompt_tokens") == [590, 300]
    assert column(hours(1), "kv_usage_ratio_last") == [0.5, 0.9]


def test_hours_weigh_minutes_by_their_readings():
    write(*(reading(1, s, kv_usage_ratio=0.0) for s in range(0, 60, 5)), reading(1, 60, kv_usage_ratio=1.0))
    roll_up(at(3700))
    assert hours(1)[0]["kv_usage_ratio_avg"] == pytest.approx(1 / 13)


def _random_day(seed: int) -> list:
    chance = random.Random(seed)
    found, tokens, counts = [], 0.0, [0, 0, 0, 0]
    for second in range(0, 3 * 3600, 20):
        if chance.random() < 0.1:
            continue
        if chance.random() < 0.01:
            tokens, counts = 0.0, [0, 0, 0, 0]
        tokens += chance.randrange(50)
        for bound in range(chance.randrange(4), 4):
            counts[bound] += 1
        histograms = {"ttft": histogram(*counts)} if second % 60 == 40 else {}
        found.append(reading(1, second, histograms, prompt_tokens=tokens, requests_running=chance.random()))
    return found


def _all() -> tuple[list, list]:
    return minutes(1), hours(1)


def test_running_twice_changes_nothing():
    write(*_random_day(1))
    roll_up(at(4 * 3600))
    first = _all()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE engines_rollup SET upto = %s WHERE level = 'minute'", [at(1800)])
    roll_up(at(4 * 3600))
    assert _all() == first
    assert len(first[0]) > 150


def test_steps_and_one_run_after_downtime_give_the_same(monkeypatch):
    write(*_random_day(2))
    for minute in range(0, 240, 7):
        roll_up(at(60 * minute))
    stepwise = _all()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM engines_minute")
        cursor.execute("DELETE FROM engines_hour")
        cursor.execute("UPDATE engines_rollup SET upto = NULL")
    monkeypatch.setattr(rollup, "_CHUNK", timedelta(minutes=45))
    roll_up(at(60 * 239))
    assert _all() == stepwise


def test_a_late_reading_is_rolled_up_again():
    write(reading(1, 0, prompt_tokens=0), reading(1, 60, prompt_tokens=60))
    roll_up(at(3 * 3600))
    assert column(hours(1), "samples") == [2]
    write(reading(1, 30, prompt_tokens=50))
    roll_up(at(3 * 3600))
    assert column(minutes(1), "prompt_tokens") == [50, 10]
    assert column(hours(1), "samples") == [3]
    assert column(hours(1), "prompt_tokens") == [60]


def test_a_budget_leaves_the_rest_for_the_next_run(monkeypatch):
    monkeypatch.setattr(rollup, "_CHUNK", timedelta(minutes=1))
    write(*(reading(1, 60 * m) for m in range(5)))
    roll_up(at(600), budget_s=0)
    assert len(minutes(1)) == 1
    for _ in range(4):
        roll_up(at(600), budget_s=0)
    assert len(minutes(1)) == 5
