"""A span of time to look at, and from which table it is read. Pure but for the settings it is given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

#: no chart has more points than this in a series
POINTS = 800

#: the ranges that pages offer
RANGES = {
    "15m": timedelta(minutes=15),
    "3h": timedelta(hours=3),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}

_MINUTE_STEPS = (60, 120, 300, 600, 900, 1800)
_HOUR_STEPS = (3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600, 7 * 86400)


class Source(StrEnum):
    RAW = "raw"
    MINUTE = "minute"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class Keep:
    """How long each table keeps its rows."""

    raw: timedelta
    minutes: timedelta


@dataclass(frozen=True, slots=True)
class Window:
    """``start`` to ``end``, read from ``source`` in steps of ``step_s`` seconds (raw: one poll)."""

    start: datetime
    end: datetime
    source: Source
    step_s: float

    @property
    def live(self) -> bool:
        """Short enough for its newest point to be the newest reading."""
        return self.source is Source.RAW or self.end - self.start <= timedelta(hours=6)

    @property
    def refresh_s(self) -> int:
        """How often it is worth asking again."""
        if self.live:
            return 5
        return 30 if self.source is Source.MINUTE else 60

    def for_buckets(self) -> Window:
        """The same span for histograms: they are kept once a minute, and long spans are read from hours."""
        span = (self.end - self.start).total_seconds()
        if self.source is Source.RAW:
            return Window(self.start, self.end, Source.MINUTE, 60)
        if self.source is Source.MINUTE and span > 2 * 86400:
            return Window(self.start, self.end, Source.HOUR, 3600)
        return Window(self.start, self.end, self.source, max(self.step_s, 300 if span > 6 * 3600 else 60))


def window(start: datetime, end: datetime, *, now: datetime, interval_s: float, keep: Keep) -> Window:
    """Choose the finest table that has the span in at most POINTS points."""
    span = (end - start).total_seconds()
    if span <= POINTS * interval_s and start >= now - keep.raw:
        return Window(start, end, Source.RAW, interval_s)
    if start >= now - keep.minutes:
        for step in _MINUTE_STEPS:
            if span <= POINTS * step:
                return Window(start, end, Source.MINUTE, step)
    for step in _HOUR_STEPS:
        if span <= POINTS * step:
            return Window(start, end, Source.HOUR, step)
    return Window(start, end, Source.HOUR, _HOUR_STEPS[-1])
