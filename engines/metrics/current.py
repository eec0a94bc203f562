"""What engines say now, and their last hour: for cards and lists, one query for all engines each."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.utils import timezone

from engines.metrics.buckets import layouts
from engines.metrics.columns import layout_position
from engines.metrics.quantile import quantile
from engines.metrics.schedule import stale_after


@dataclass(frozen=True, slots=True)
class Reading:
    """An engine's newest reading. Every field is None when it is not known; nothing is 0 for want of data.

    ``taken_at`` is None when the engine has not answered lately (three polls); then so is all else.
    Ratios are 0 to 1, rates per second over the last complete minute, times in seconds.
    """

    taken_at: datetime | None = None
    kv_usage: float | None = None
    running: float | None = None
    waiting: float | None = None
    prompt_tokens_per_s: float | None = None
    generation_tokens_per_s: float | None = None
    prefix_hit_rate: float | None = None
    preemptions: float | None = None
    ttft_p95: float | None = None
    inter_token_p50: float | None = None
    inter_token_p99: float | None = None


NO_READING = Reading()


def current_readings(engine_ids: Iterable[int]) -> dict[int, Reading]:
    """The newest reading of each engine; NO_READING for one that has none lately."""
    ids = list(engine_ids)
    readings = dict.fromkeys(ids, NO_READING)
    if not ids:
        return readings
    now = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT e.id, s.taken_at, s.kv_usage_ratio, s.requests_running, s.requests_waiting,
                m.prompt_tokens / nullif(m.covered_s, 0), m.generation_tokens / nullif(m.covered_s, 0),
                m.prefix_cache_hits / nullif(m.prefix_cache_queries, 0),
                s.prefix_cache_hit_rate_gauge, s.preemptions,
                m.layouts[%(ttft_place)s], m.ttft, m.layouts[%(itl_place)s], m.inter_token_latency
            FROM unnest(%(ids)s::int8[]) AS e (id)
            CROSS JOIN LATERAL (
                SELECT * FROM engines_sample AS s
                WHERE s.engine_id = e.id AND s.taken_at > %(fresh)s AND s.taken_at <= %(now)s
                ORDER BY s.taken_at DESC LIMIT 1) AS s
            LEFT JOIN LATERAL (
                SELECT * FROM engines_minute AS m
                WHERE m.engine_id = e.id AND m.minute > %(recent)s AND m.minute <= %(now)s
                ORDER BY m.minute DESC LIMIT 1) AS m ON true
            """,
            {
                "ids": ids,
                "now": now,
                "fresh": now - stale_after(),
                "recent": now - timedelta(minutes=5),
                "ttft_place": layout_position("ttft"),
                "itl_place": layout_position("inter_token_latency"),
            },
        )
        found = cursor.fetchall()
    bounds = layouts({row[place] for row in found for place in (10, 12) if row[place]})
    for row in found:
        ttft, gaps = (bounds.get(row[10]), row[11]), (bounds.get(row[12]), row[13])
        readings[row[0]] = Reading(
            taken_at=row[1],
            kv_usage=row[2],
            running=row[3],
            waiting=row[4],
            prompt_tokens_per_s=row[5],
            generation_tokens_per_s=row[6],
            prefix_hit_rate=row[8] if row[7] is None else row[7],
            preemptions=row[9],
            ttft_p95=_percentile(0.95, *ttft),
            inter_token_p50=_percentile(0.5, *gaps),
            inter_token_p99=_percentile(0.99, *gaps),
        )
    return readings


def _percentile(q: float, bounds: tuple[float, ...] | None, counts: list[int] | None) -> float | None:
    if bounds is None or counts is None:
        return None
    found = quantile(q, bounds, counts)
    return None if found is None else found.value


def sparklines(engine_ids: Collection[int], minutes: int = 60) -> dict[int, list[float | None]]:
    """KV cache usage of each of the last complete minutes, oldest first; None where none is known."""
    ids = list(engine_ids)
    lines: dict[int, list[float | None]] = {engine_id: [None] * minutes for engine_id in ids}
    if not ids:
        return lines
    with connection.cursor() as cursor:
        cursor.execute("SELECT upto FROM engines_rollup WHERE level = 'minute'")
        upto = cursor.fetchone()[0]
        # when the rollup is behind by more than a moment, the gap is shown
        recent = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=1)
        end = recent if upto is None else max(upto, recent)
        start = end - timedelta(minutes=minutes)
        cursor.execute(
            "SELECT engine_id, minute, kv_usage_ratio_avg FROM engines_minute"
            " WHERE engine_id = ANY(%s) AND minute >= %s AND minute < %s",
            [ids, start, end],
        )
        for engine_id, minute, usage in cursor.fetchall():
            lines[engine_id][int((minute - start).total_seconds() // 60)] = usage
    return lines
