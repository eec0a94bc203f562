from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from engines.metrics.parse import parse_page
from engines.metrics.store import Polled, Sample, SampleStore, mark_polled
from tests.engines.metrics import reference
from tests.engines.metrics.readings import NOON, at, histogram, reading, rows, write
from tests.support.factories import EngineFactory

pytestmark = pytest.mark.django_db


def test_a_real_page_is_kept_as_it_was_read():
    page = parse_page(reference.sample("vllm-0.25.1-h200.txt"))
    write(Sample(1, NOON, page.values, page.histograms))
    (row,) = rows("SELECT * FROM engines_sample")
    assert row["taken_at"] == NOON
    assert row["kv_usage_ratio"] == page.values["kv_usage_ratio"]
    assert row["prompt_tokens"] == 40717
    assert row["ttft"] == [int(count) for count in page.histograms["ttft"].counts]
    assert row["ttft_sum"] == page.histograms["ttft"].sum
    (layout,) = rows("SELECT bounds FROM engines_bucket_layout WHERE id = %s", row["layouts"][0])
    assert tuple(layout["bounds"]) == page.histograms["ttft"].bounds


def test_what_a_page_does_not_have_is_null():
    write(reading(1, 0, requests_running=0.0))
    (row,) = rows("SELECT * FROM engines_sample")
    assert row["requests_running"] == 0
    assert row["kv_usage_ratio"] is None
    assert row["ttft"] is None


def test_the_same_readings_twice_are_one():
    store = SampleStore()
    store.write([reading(1, 0, requests_running=1)])
    store.write([reading(1, 0, requests_running=9), reading(1, 5, requests_running=2), reading(2, 0)])
    found = rows("SELECT engine_id, requests_running FROM engines_sample ORDER BY engine_id, taken_at")
    assert [(row["engine_id"], row["requests_running"]) for row in found] == [(1, 1), (1, 2), (2, None)]


def test_histograms_of_one_shape_share_a_layout():
    store = SampleStore()
    store.write([reading(1, 0, {"ttft": histogram(0, 0, 1, 2), "queue_time": histogram(1, 1, 1, 1)})])
    SampleStore().write([reading(2, 0, {"ttft": histogram(0, 0, 1, 2)})])
    assert len(rows("SELECT * FROM engines_bucket_layout")) == 1


def test_readings_of_any_day_find_their_partition():
    write(reading(1, 0), reading(1, 86_400 * 40), reading(1, -86_400 * 40))
    assert len(rows("SELECT DISTINCT tableoid FROM engines_sample")) == 3


def test_polls_write_their_times_and_nothing_else():
    answered, silent = EngineFactory(name="a"), EngineFactory(name="b")
    before = answered.seq
    mark_polled(
        [Polled(answered.pk, at(3), at(3), True), Polled(silent.pk, at(4), None, False)],
    )
    answered.refresh_from_db()
    silent.refresh_from_db()
    assert (answered.polled_at, answered.answered_at) == (at(3), at(3))
    assert (silent.polled_at, silent.answered_at) == (at(4), None)
    assert answered.seq > before
    assert silent.seq == before


def test_an_older_poll_does_not_turn_times_back():
    engine = EngineFactory()
    mark_polled([Polled(engine.pk, at(10), at(10), False)])
    mark_polled([Polled(engine.pk, at(5), None, False)])
    engine.refresh_from_db()
    assert (engine.polled_at, engine.answered_at) == (at(10), at(10))


def test_late_readings_move_the_rollup_back():
    from django.db import connection

    now = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE engines_rollup SET upto = %s", [now])
    write(Sample(1, now, {}))
    (row,) = rows("SELECT upto FROM engines_rollup WHERE level = 'minute'")
    assert row["upto"] == now
    late = now - timedelta(minutes=7)
    write(Sample(1, late, {}))
    (row,) = rows("SELECT upto FROM engines_rollup WHERE level = 'minute'")
    assert row["upto"] == late.replace(second=0, microsecond=0)
