from __future__ import annotations

from datetime import timedelta

import pytest

from engines.metrics.partitions import (
    HOURS,
    MINUTES,
    SAMPLES,
    drop_old,
    ensure_ahead,
    ensure_partitions,
    existing,
)
from engines.tasks.rollup import keep_partitions
from tests.engines.metrics.readings import NOON, at, reading, rows, write

pytestmark = pytest.mark.django_db


def test_partitions_are_made_ahead_and_once():
    assert ensure_ahead(NOON) > 0
    assert {"engines_sample_20260504", "engines_sample_20260507"} <= existing(SAMPLES)
    assert "engines_minute_20260507" in existing(MINUTES)
    assert {"engines_hour_202605", "engines_hour_202606"} <= existing(HOURS)
    assert ensure_ahead(NOON) == 0


def test_old_partitions_are_dropped_whole(settings):
    settings.KVADMIN_KEEP_RAW_H = 48
    write(reading(1, 0), reading(1, 86_400), reading(1, 3 * 86_400))
    ensure_partitions(NOON, NOON, (MINUTES, HOURS))
    dropped = drop_old(at(3 * 86_400))  # noon of the 7th: what is of the 4th is older than 48 hours
    assert dropped == ["engines_sample_20260504"]
    assert len(rows("SELECT * FROM engines_sample")) == 2
    assert drop_old(at(3 * 86_400)) == []


def test_minutes_and_hours_are_kept_longer(settings):
    settings.KVADMIN_KEEP_MINUTES_D = 30
    settings.KVADMIN_KEEP_HOURS_D = 400
    ensure_partitions(NOON, NOON)
    assert drop_old(NOON + timedelta(days=29)) == ["engines_sample_20260504"]
    assert drop_old(NOON + timedelta(days=31)) == ["engines_minute_20260504"]
    assert drop_old(NOON + timedelta(days=400)) == []
    assert drop_old(NOON + timedelta(days=430)) == ["engines_hour_202605"]


def test_the_task_makes_and_drops():
    ensure_partitions(NOON, NOON, (SAMPLES,))
    keep_partitions()
    assert "engines_sample_20260504" not in existing(SAMPLES)
    assert existing(SAMPLES)
