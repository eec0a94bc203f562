"""The tables of usage: their columns, their partitions, and how long rows stay."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction

from engines.metrics.partitions import Table, ensure_partitions, existing

#: what a rollup is kept apart by
KEYS = ("key_id", "business_id", "team_id", "route_id", "engine_id", "model")
#: columns that add up
SUMS = (
    "requests",
    "streamed",
    "failed_caller",
    "failed_gateway",
    "failed_engine",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "estimated_tokens",
    "total_s",
    "first_byte_s",
)
#: columns with counts by bucket
HISTOGRAMS = ("latency", "first_byte")
#: what days are kept: a small table, and years of them are compared
DAYS_KEPT = timedelta(days=5 * 366)
AHEAD = 3


class UsageTable(Table):
    """A partitioned table of usage."""

    @property
    def keep(self) -> timedelta:
        raw = timedelta(days=settings.KVADMIN_KEEP_USAGE_D)
        if self.name == "routes_usage":
            return raw
        if self.name == "routes_usage_minute":
            # hours are made anew from minutes when rows come late
            return max(raw, timedelta(days=settings.KVADMIN_KEEP_MINUTES_D))
        if self.name == "routes_usage_hour":
            return max(raw + timedelta(days=31), timedelta(days=settings.KVADMIN_KEEP_HOURS_D))
        return DAYS_KEPT


RAW = UsageTable("routes_usage", monthly=False)
MINUTES = UsageTable("routes_usage_minute", monthly=False)
HOURS = UsageTable("routes_usage_hour", monthly=True)
DAYS = UsageTable("routes_usage_day", monthly=True)
TABLES = (RAW, MINUTES, HOURS, DAYS)


def ensure_ahead(now: datetime) -> int:
    """Make the partitions of now and the next days (or months); returns how many."""
    return sum(
        ensure_partitions(now, now + timedelta(days=31 if table.monthly else AHEAD), (table,))
        for table in TABLES
    )


def drop_old(now: datetime) -> list[str]:
    """Drop partitions that are older than is kept, and the oldest days of single rows while these take more
    than KVADMIN_KEEP_USAGE_GB; never today's. Returns their names.

    Waits at most 5 seconds for readers and then raises OperationalError: the next run tries again.
    """
    dropped = []
    for table in TABLES:
        for partition in sorted(existing(table)):
            start = table.start_of(partition)
            if start is not None and table.after(start) <= now - table.keep:
                _drop(table, partition)
                dropped.append(partition)
    sizes = _sizes()
    total = sum(sizes.values())
    for partition in sorted(sizes):
        start = RAW.start_of(partition)
        if total <= settings.KVADMIN_KEEP_USAGE_GB << 30 or start is None or RAW.after(start) > now:
            break
        _drop(RAW, partition)
        total -= sizes[partition]
        dropped.append(partition)
    return dropped


def _drop(table: Table, partition: str) -> None:
    start = table.start_of(partition)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '5s'")
        if table is RAW and start is not None:
            # rows that come for that time later are not taken: its rollups could not be made again
            cursor.execute(
                "UPDATE routes_usage_rollup SET upto = greatest(upto, %s) WHERE level = 'raw'",
                [table.after(start)],
            )
            cursor.execute("DELETE FROM routes_usage_dirty WHERE minute < %s", [table.after(start)])
        cursor.execute(f"DROP TABLE IF EXISTS {partition}")


def _sizes() -> dict[str, int]:
    """Bytes of each day of single rows, with its indexes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text, pg_total_relation_size(inhrelid) FROM pg_inherits"
            " WHERE inhparent = 'routes_usage'::regclass"
        )
        return dict(cursor.fetchall())
