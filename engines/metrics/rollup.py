"""Raw samples into minutes, minutes into hours. Safe to run twice, and after any downtime.

``engines_rollup.upto`` says how far each level is; its row is locked while a run works, so runs never
overlap. A writer of late rows moves ``upto`` back (SampleStore), and those minutes are rolled up again.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from functools import lru_cache

from django.db import connection, transaction
from django.utils import timezone

from engines.metrics.columns import COUNTERS, GAUGES, HISTOGRAMS, layout_position
from engines.metrics.partitions import HOURS, MINUTES, ensure_partitions

#: a minute is rolled up this long after its end; what is written later moves the rollup back
LAG = timedelta(seconds=10)
#: minutes of samples in one transaction
_CHUNK = timedelta(minutes=30)


@lru_cache(maxsize=1)
def _minute_sql() -> str:
    """Samples of [start, end) into minutes; parameters start, end, oldest (of the search for the sample
    before the first)."""
    increases = [
        f"CASE WHEN began IS DISTINCT FROM process_start OR {name} < lag({name}) OVER w"
        f" THEN {name} + 0 * lag({name}) OVER w ELSE {name} - lag({name}) OVER w END AS {name}_inc"
        for name in COUNTERS
    ]
    gauges = [
        f"avg({name}), min({name}), max({name}),"
        f" (array_agg({name} ORDER BY taken_at DESC) FILTER (WHERE {name} IS NOT NULL))[1]"
        for name in GAUGES
    ]
    targets = [f"{name}_{what}" for name in GAUGES for what in ("avg", "min", "max", "last")]
    grown, sums = [], []
    for name in HISTOGRAMS:
        place = layout_position(name)
        grown.append(
            f"CASE WHEN lag({name}) OVER w IS NULL THEN NULL"
            f" WHEN began IS DISTINCT FROM process_start"
            f" OR layouts[{place}] <> lag(layouts[{place}]) OVER w THEN {name}"
            f" ELSE engines_counts_increase({name}, lag({name}) OVER w) END AS {name}_inc"
        )
        sums.append(
            f"CASE WHEN began IS DISTINCT FROM process_start OR {name}_sum < lag({name}_sum) OVER w"
            f" THEN {name}_sum + 0 * lag({name}_sum) OVER w"
            f" ELSE {name}_sum - lag({name}_sum) OVER w END AS {name}_sum_inc"
        )
    counts = [
        f"engines_counts_sum({name}_inc) FILTER (WHERE layouts[{layout_position(name)}]"
        f" = newest[{layout_position(name)}]) AS {name}"
        for name in HISTOGRAMS
    ]
    count_sums = [f"sum({name}_sum_inc) AS {name}_sum" for name in HISTOGRAMS]
    columns = [
        "engine_id",
        "minute",
        "samples",
        "covered_s",
        *targets,
        *COUNTERS,
        "layouts",
        *HISTOGRAMS,
        *(f"{name}_sum" for name in HISTOGRAMS),
    ]
    bucket_columns = ", ".join(
        ["engine_id", "taken_at", "process_start", "layouts", *HISTOGRAMS]
        + [f"{name}_sum" for name in HISTOGRAMS]
    )
    scalar_columns = ", ".join(["engine_id", "taken_at", "process_start", *GAUGES, *COUNTERS])
    return f"""
WITH span AS MATERIALIZED (
    SELECT * FROM engines_sample WHERE taken_at >= %(start)s AND taken_at < %(end)s
), seen AS (
    SELECT DISTINCT engine_id FROM span
), scalar AS (
    SELECT {scalar_columns} FROM span
    UNION ALL
    SELECT before.* FROM seen CROSS JOIN LATERAL (
        SELECT {scalar_columns} FROM engines_sample AS s
        WHERE s.engine_id = seen.engine_id AND s.taken_at < %(start)s AND s.taken_at >= %(oldest)s
        ORDER BY s.taken_at DESC LIMIT 1) AS before
), began AS (
    SELECT *, lag(process_start) OVER (PARTITION BY engine_id ORDER BY taken_at) AS began FROM scalar
), grown AS (
    SELECT *, extract(epoch FROM taken_at - lag(taken_at) OVER w)::float8 AS covered,
        {", ".join(increases)}
    FROM began WINDOW w AS (PARTITION BY engine_id ORDER BY taken_at)
), minutes AS (
    SELECT engine_id, date_trunc('minute', taken_at) AS minute, count(*), sum(covered),
        {", ".join(gauges)},
        {", ".join(f"sum({name}_inc)" for name in COUNTERS)}
    FROM grown WHERE taken_at >= %(start)s GROUP BY 1, 2
), bucket AS (
    SELECT {bucket_columns} FROM span WHERE layouts IS NOT NULL
    UNION ALL
    SELECT before.* FROM seen CROSS JOIN LATERAL (
        SELECT {bucket_columns} FROM engines_sample AS s
        WHERE s.engine_id = seen.engine_id AND s.taken_at < %(start)s AND s.taken_at >= %(oldest)s
            AND s.layouts IS NOT NULL
        ORDER BY s.taken_at DESC LIMIT 1) AS before
), bucket_began AS (
    SELECT *, lag(process_start) OVER (PARTITION BY engine_id ORDER BY taken_at) AS began FROM bucket
), bucket_grown AS (
    SELECT engine_id, taken_at, layouts,
        first_value(layouts) OVER (
            PARTITION BY engine_id, date_trunc('minute', taken_at) ORDER BY taken_at DESC) AS newest,
        {", ".join(grown)}, {", ".join(sums)}
    FROM bucket_began WINDOW w AS (PARTITION BY engine_id ORDER BY taken_at)
), bucket_minutes AS (
    SELECT engine_id, date_trunc('minute', taken_at) AS minute,
        max(newest) AS layouts,
        {", ".join(counts)}, {", ".join(count_sums)}
    FROM bucket_grown WHERE taken_at >= %(start)s GROUP BY 1, 2
)
INSERT INTO engines_minute ({", ".join(columns)})
SELECT m.*, b.layouts, {", ".join(f"b.{name}" for name in HISTOGRAMS)},
    {", ".join(f"b.{name}_sum" for name in HISTOGRAMS)}
FROM minutes AS m LEFT JOIN bucket_minutes AS b USING (engine_id, minute)
ON CONFLICT (engine_id, minute) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in columns[2:])}
"""


def summed() -> list[tuple[str, str]]:
    """How rows of minutes (or hours) become one: (column, SQL aggregate over rows named ``r``).

    Histograms count only where their layout is the newest's (``newest``).
    """
    result: list[tuple[str, str]] = [("samples", "sum(r.samples)"), ("covered_s", "sum(r.covered_s)")]
    for name in GAUGES:
        there = f"WHERE r.{name}_avg IS NOT NULL"
        result += [
            (f"{name}_avg", f"sum(r.{name}_avg * r.samples) / sum(r.samples) FILTER ({there})"),
            (f"{name}_min", f"min(r.{name}_min)"),
            (f"{name}_max", f"max(r.{name}_max)"),
            (f"{name}_last", f"(array_agg(r.{name}_last ORDER BY r.minute DESC) FILTER ({there}))[1]"),
        ]
    result += [(name, f"sum(r.{name})") for name in COUNTERS]
    result.append(("layouts", "max(r.newest)"))
    for name in HISTOGRAMS:
        place = layout_position(name)
        same = f"FILTER (WHERE r.layouts[{place}] = r.newest[{place}])"
        result.append((name, f"engines_counts_sum(r.{name}) {same}"))
    result += [(f"{name}_sum", f"sum(r.{name}_sum)") for name in HISTOGRAMS]
    return result


@lru_cache(maxsize=1)
def _hour_sql() -> str:
    aggregates = summed()
    names = [name for name, _ in aggregates]
    return f"""
WITH r AS (
    SELECT *, date_trunc('hour', minute) AS hour, first_value(layouts) OVER (
        PARTITION BY engine_id, date_trunc('hour', minute) ORDER BY layouts IS NULL, minute DESC) AS newest
    FROM engines_minute WHERE minute >= %(start)s AND minute < %(end)s
)
INSERT INTO engines_hour (engine_id, hour, {", ".join(names)})
SELECT engine_id, hour, {", ".join(sql for _, sql in aggregates)}
FROM r GROUP BY engine_id, hour
ON CONFLICT (engine_id, hour) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in names)}
"""


def _locked_upto(level: str) -> tuple[bool, datetime | None]:
    """Take the level for this transaction: (taken, how far it is)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT upto FROM engines_rollup WHERE level = %s FOR UPDATE SKIP LOCKED", [level])
        row = cursor.fetchone()
    return (False, None) if row is None else (True, row[0])


def _first(table: str, column: str) -> datetime | None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT min({column}) FROM {table}")
        return cursor.fetchone()[0]


def _minute_step(now: datetime) -> bool:
    """Roll up one chunk of minutes; True if there is more."""
    end = (now - LAG).replace(second=0, microsecond=0)
    with transaction.atomic():
        taken, start = _locked_upto("minute")
        if not taken:
            return False
        if start is None:
            first = _first("engines_sample", "taken_at")
            if first is None:
                return False
            start = first.replace(second=0, microsecond=0)
        if start >= end:
            return False
        stop = min(end, start + _CHUNK)
        ensure_partitions(start, stop, (MINUTES,))
        with connection.cursor() as cursor:
            cursor.execute(_minute_sql(), {"start": start, "end": stop, "oldest": start - timedelta(days=2)})
            cursor.execute("UPDATE engines_rollup SET upto = %s WHERE level = 'minute'", [stop])
            cursor.execute(
                "UPDATE engines_rollup SET upto = date_trunc('hour', %s::timestamptz)"
                " WHERE level = 'hour' AND upto > %s",
                [start, start],
            )
    return stop < end


def _hour_step() -> bool:
    """Roll up one hour whose minutes are complete; True if there is more."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT date_trunc('hour', upto) FROM engines_rollup WHERE level = 'minute'")
            end = cursor.fetchone()[0]
        taken, start = _locked_upto("hour")
        if not taken or end is None:
            return False
        if start is None:
            first = _first("engines_minute", "minute")
            if first is None:
                return False
            start = first.replace(minute=0)
        if start >= end:
            return False
        stop = start + timedelta(hours=1)
        ensure_partitions(start, start, (HOURS,))
        with connection.cursor() as cursor:
            cursor.execute(_hour_sql(), {"start": start, "end": stop})
            cursor.execute("UPDATE engines_rollup SET upto = %s WHERE level = 'hour'", [stop])
    return stop < end


def roll_up(now: datetime | None = None, *, budget_s: float = 25) -> None:
    """Roll up every complete minute and hour, oldest first, for about ``budget_s`` at most.

    What is left after that (a long downtime) is for the next run.
    """
    now = now or timezone.now()
    until = time.monotonic() + budget_s
    while _minute_step(now) and time.monotonic() < until:
        pass
    while _hour_step() and time.monotonic() < until:
        pass
