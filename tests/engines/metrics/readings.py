"""Readings at chosen times, for tests of storage, rollups and charts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from math import inf

from django.db import connection

from engines.metrics.parse import Histogram
from engines.metrics.store import Sample, SampleStore

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
BOUNDS = (0.1, 0.5, 1.0, inf)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def histogram(*counts: int, bounds: tuple[float, ...] = BOUNDS) -> Histogram:
    """Cumulative counts at BOUNDS."""
    return Histogram(bounds, tuple(map(float, counts)), float(counts[-1]) * 0.3)


def write(*samples: Sample) -> None:
    SampleStore().write(samples)


def reading(engine_id: int, seconds: float, histograms: dict | None = None, **values: float) -> Sample:
    return Sample(engine_id, at(seconds), values, histograms or {})


def rows(sql: str, *parameters) -> list[dict]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def minutes(engine_id: int) -> list[dict]:
    return rows("SELECT * FROM engines_minute WHERE engine_id = %s ORDER BY minute", engine_id)


def hours(engine_id: int) -> list[dict]:
    return rows("SELECT * FROM engines_hour WHERE engine_id = %s ORDER BY hour", engine_id)


def column(found: Iterable[dict], name: str) -> list:
    return [row[name] for row in found]
