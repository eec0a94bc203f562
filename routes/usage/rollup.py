"""Single rows of usage into minutes, minutes into hours, hours into days. Safe to run twice.

Whoever adds rows leaves a line in ``routes_usage_dirty`` for each minute they fall in, in the same
transaction. A run takes the lines it can see and makes those minutes anew from everything it then sees; lines
that come meanwhile are for the next run. So a row that comes late, by hours, is counted, and none is twice.
``routes_usage_rollup.upto`` says how far each level is; its row is locked while a run works.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.utils import timezone

from routes.usage.sums import KEYS, from_rollup, from_rows
from routes.usage.tables import DAYS, HISTOGRAMS, HOURS, MINUTES, SUMS, ensure_partitions

#: a minute is rolled up this long after its end; rows of requests that end later make it anew
LAG = timedelta(seconds=5)
#: minutes in one transaction
_CHUNK = 60
_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

_COLUMNS = f"at, {KEYS}, {', '.join(SUMS)}, {', '.join(HISTOGRAMS)}, codes"
_SPAN = "at >= %(start)s AND at < %(end)s"


def _hour_of(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def _day_of(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def roll_up(now: datetime | None = None, *, budget_s: float = 25) -> None:
    """Roll up what is complete, oldest first, for about ``budget_s`` at most; the next run does the rest."""
    now = now or timezone.now()
    until = time.monotonic() + budget_s
    while _step(now) and time.monotonic() < until:
        pass


def _step(now: datetime) -> bool:
    """One chunk of minutes, and the hours and days that follow from it; True if there is more."""
    end = (now - LAG).replace(second=0, microsecond=0)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT upto FROM routes_usage_rollup WHERE level = 'minute' FOR UPDATE SKIP LOCKED")
        if cursor.fetchone() is None:
            return False
        cursor.execute(
            "SELECT DISTINCT minute FROM routes_usage_dirty WHERE minute < %s ORDER BY minute LIMIT %s",
            [end, _CHUNK],
        )
        minutes = [minute for (minute,) in cursor.fetchall()]
        more = len(minutes) == _CHUNK
        # the lines go first: what the statements after it see is at least what they stood for
        cursor.execute("DELETE FROM routes_usage_dirty WHERE minute = ANY(%s)", [minutes])
        for first, last in _runs(minutes):
            _make(cursor, "minute", first, last + _MINUTE)
        done = minutes[-1] + _MINUTE if more else end
        _advance(cursor, "minute", done)
        _follow_up(cursor, minutes)
    return more


def _runs(minutes: list[datetime]) -> Iterator[tuple[datetime, datetime]]:
    """First and last of minutes of a day that follow each other: one statement makes them all."""
    first = last = None
    for minute in minutes:
        if first is not None and last is not None:
            if minute - last == _MINUTE and _day_of(minute) == _day_of(first):
                last = minute
                continue
            yield first, last
        first = last = minute
    if first is not None and last is not None:
        yield first, last


def _follow_up(cursor, minutes: Iterable[datetime]) -> None:
    """Hours and days that are complete by now, and those that were and got late minutes."""
    minute_upto = _upto(cursor, "minute")
    hours = _due(cursor, "hour", {_hour_of(minute) for minute in minutes}, _hour_of(minute_upto), _HOUR)
    for hour in hours:
        _make(cursor, "hour", hour, hour + _HOUR)
    _advance(cursor, "hour", _hour_of(minute_upto))
    days = _due(cursor, "day", {_day_of(hour) for hour in hours}, _day_of(minute_upto), _DAY)
    for day in days:
        _make(cursor, "day", day, day + _DAY)
    _advance(cursor, "day", _day_of(minute_upto))


def _due(cursor, level: str, touched: set[datetime], end: datetime, step: timedelta) -> list[datetime]:
    """Spans that begin before ``end`` and are touched, or not made yet and have something in them."""
    below = {"hour": "routes_usage_minute", "day": "routes_usage_hour"}[level]
    cursor.execute(
        f"SELECT DISTINCT date_trunc('{level}', at, 'UTC') FROM {below} WHERE at >= %s AND at < %s",
        [_upto(cursor, level) or datetime.min.replace(year=1970, tzinfo=end.tzinfo), end],
    )
    new = {moment for (moment,) in cursor.fetchall()}
    return sorted(moment for moment in touched | new if moment + step <= end)


def _make(cursor, level: str, start: datetime, end: datetime) -> None:
    """Make the rollups of a span anew."""
    table = {"minute": MINUTES, "hour": HOURS, "day": DAYS}[level]
    ensure_partitions(start, start, (table,))
    span = {"start": start, "end": end}
    if level == "minute":
        source = from_rows(level, _SPAN)
    else:
        source = from_rollup("routes_usage_minute" if level == "hour" else "routes_usage_hour", level, _SPAN)
    cursor.execute(f"DELETE FROM {table.name} WHERE {_SPAN}", span)
    cursor.execute(f"INSERT INTO {table.name} ({_COLUMNS}) {source}", span)


def _upto(cursor, level: str) -> datetime:
    cursor.execute("SELECT upto FROM routes_usage_rollup WHERE level = %s", [level])
    return cursor.fetchone()[0]


def _advance(cursor, level: str, upto: datetime) -> None:
    cursor.execute("UPDATE routes_usage_rollup SET upto = greatest(upto, %s) WHERE level = %s", [upto, level])
