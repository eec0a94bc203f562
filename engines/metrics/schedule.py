"""When each engine is polled."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

#: past this many engines, KVADMIN_POLL_SECONDS_MANY is the interval
MANY = 300
#: how long an engine may take to answer
TIMEOUT_S = 3.0
#: spreads consecutive ids evenly over the interval
_GOLDEN = 0.6180339887498949


def interval_for(engines: int) -> float:
    """Seconds between two polls of an engine."""
    return settings.KVADMIN_POLL_SECONDS_MANY if engines > MANY else settings.KVADMIN_POLL_SECONDS


def next_due(engine_id: int, interval: float, after: float) -> float:
    """The first time after ``after`` (epoch seconds) at which an engine is due.

    The same in every process and after every restart: it depends on the id, the interval and the clock.
    """
    phase = (engine_id * _GOLDEN) % 1.0 * interval
    turns = (after - phase) // interval + 1
    return turns * interval + phase


def ends_minute(due: float, interval: float) -> bool:
    """True if the poll at ``due`` is the engine's last in its minute: that one reads the buckets."""
    return (due + interval) // 60 != due // 60


def stale_after() -> timedelta:
    """How old the newest reading may be and still be what the engine says now: three polls."""
    longest = max(settings.KVADMIN_POLL_SECONDS, settings.KVADMIN_POLL_SECONDS_MANY)
    return timedelta(seconds=3 * longest + TIMEOUT_S)
