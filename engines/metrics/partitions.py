"""Partitions of the metric tables: made ahead, dropped when what they hold is old."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection, transaction

#: any number that only this lock uses
_LOCK = 7_311_001

#: how many partitions exist ahead of now
AHEAD = 3


@dataclass(frozen=True, slots=True)
class Table:
    """A partitioned table; ``monthly`` or by day; ``keep`` is how long its rows stay."""

    name: str
    monthly: bool

    @property
    def keep(self) -> timedelta:
        if self.name == "engines_sample":
            return timedelta(hours=settings.KVADMIN_KEEP_RAW_H)
        if self.name == "engines_minute":
            return timedelta(days=settings.KVADMIN_KEEP_MINUTES_D)
        return timedelta(days=settings.KVADMIN_KEEP_HOURS_D)

    def start(self, moment: datetime) -> datetime:
        """Where the partition that holds a moment begins."""
        day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return day.replace(day=1) if self.monthly else day

    def after(self, start: datetime) -> datetime:
        """Where the partition after the one that begins at ``start`` begins."""
        return self.start(start + timedelta(days=32 if self.monthly else 1))

    def partition(self, start: datetime) -> str:
        return f"{self.name}_{start:%Y%m}" if self.monthly else f"{self.name}_{start:%Y%m%d}"

    def start_of(self, partition: str) -> datetime | None:
        match = re.fullmatch(rf"{self.name}_(\d{{4}})(\d\d)(\d\d)?", partition)
        return datetime(int(match[1]), int(match[2]), int(match[3] or 1), tzinfo=UTC) if match else None


SAMPLES = Table("engines_sample", monthly=False)
MINUTES = Table("engines_minute", monthly=False)
HOURS = Table("engines_hour", monthly=True)
TABLES = (SAMPLES, MINUTES, HOURS)


def existing(table: Table) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [table.name]
        )
        return {row[0] for row in cursor.fetchall()}


def _starts(table: Table, first: datetime, last: datetime) -> Iterator[datetime]:
    start = table.start(first)
    while start <= last:
        yield start
        start = table.after(start)


def ensure_partitions(first: datetime, last: datetime, tables: tuple[Table, ...] = TABLES) -> int:
    """Make what is missing for rows from ``first`` to ``last``; returns how many were made.

    Safe to run at the same time in several processes.
    """
    made = 0
    for table in tables:
        present = existing(table)
        missing = [s for s in _starts(table, first, last) if table.partition(s) not in present]
        if not missing:
            continue
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            for start in missing:
                name = table.partition(start)
                cursor.execute(
                    f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF {table.name}"
                    f" FOR VALUES FROM ('{start.isoformat()}') TO ('{table.after(start).isoformat()}')"
                )
                made += 1
    return made


def ensure_ahead(now: datetime) -> int:
    """Make the partitions of now and the next days (or months)."""
    made = 0
    for table in TABLES:
        end = now + timedelta(days=31 if table.monthly else AHEAD)
        made += ensure_partitions(now, end, (table,))
    return made


def drop_old(now: datetime) -> list[str]:
    """Drop every partition whose newest possible row is older than is kept; returns their names.

    Waits at most 5 seconds for readers of a table and then raises OperationalError: the next run tries again.
    """
    dropped = []
    for table in TABLES:
        for partition in sorted(existing(table)):
            start = table.start_of(partition)
            if start is None or table.after(start) > now - table.keep:
                continue
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '5s'")
                cursor.execute(f"DROP TABLE IF EXISTS {partition}")
            dropped.append(partition)
    return dropped
