"""Reading usage, for pages and the API: sums over a span, by time, by model, by key; errors by kind.

A span is put together of the coarsest rollups that fit into it; what is not rolled up yet, a minute or so,
comes from the single rows. Whoever calls decides what a person may see and passes it as the scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.db import connection

from engines.metrics.quantile import Quantile
from routes.usage.buckets import percentile
from routes.usage.sums import from_rows
from routes.usage.tables import HISTOGRAMS, SUMS

Step = Literal["minute", "hour", "day"]
By = Literal["model", "key_id", "business_id", "team_id", "route_id", "engine_id"]

_SIZES = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
_TABLES = {
    "minute": "routes_usage_minute",
    "hour": "routes_usage_hour",
    "day": "routes_usage_day",
    "raw": "routes_usage",
}
_SUMMED = ", ".join(
    [f"coalesce(sum({name}), 0){'' if name.endswith('_s') else '::int8'}" for name in SUMS]
    + [f"engines_counts_sum({name})" for name in HISTOGRAMS]
)
_KEPT = ", ".join(("at", "key_id", "business_id", "team_id", "route_id", "engine_id", "model"))


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose usage: what is not None narrows it down. An empty list of keys is nobody's."""

    team: int | None = None
    business: int | None = None
    key: int | None = None
    keys: Sequence[int] | None = None
    route: int | None = None
    engine: int | None = None

    @property
    def conditions(self) -> tuple[str, dict[str, Any]]:
        """SQL that begins with AND, or is empty, and its parameters."""
        words, values = [], {}
        for name in ("team", "business", "key", "route", "engine"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"AND {name}_id = %({name})s")
                values[name] = value
        if self.keys is not None:
            words.append("AND key_id = ANY(%(keys)s)")
            values["keys"] = list(self.keys)
        return " ".join(words), values


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums of some requests. ``at`` or ``of`` says which, in an answer by time or by something else.

    ``latency`` and ``first_byte`` are counts by bucket, of the requests that no error cut short; ``total_s``
    and ``first_byte_s`` are sums over the same.
    """

    at: datetime | None = None
    of: Any = None
    requests: int = 0
    streamed: int = 0
    failed_caller: int = 0
    failed_gateway: int = 0
    failed_engine: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    estimated_tokens: int = 0
    total_s: float = 0.0
    first_byte_s: float = 0.0
    latency: list[int] = field(default_factory=list)
    first_byte: list[int] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return self.failed_caller + self.failed_gateway + self.failed_engine

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def mean_s(self) -> float | None:
        """Seconds of an answered request on average; None without one."""
        answered = sum(self.latency)
        return self.total_s / answered if answered else None

    def latency_at(self, q: float) -> Quantile | None:
        """The percentile (0 to 1) of the whole time, with the bounds it lies between."""
        return percentile(q, self.latency)

    def first_byte_at(self, q: float) -> Quantile | None:
        return percentile(q, self.first_byte)


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """``layer`` is caller, gateway or engine; ``code`` as the caller was told."""

    layer: str
    code: str
    requests: int


def total(scope: Scope, start: datetime, end: datetime) -> Usage:
    """Everything in the span. Moments are rounded outwards to whole minutes."""
    (row,) = _read("", scope, start, end, None)
    return Usage(None, None, *_values(row))


def by_time(scope: Scope, start: datetime, end: datetime, step: Step) -> list[Usage]:
    """One for each minute, hour or day (UTC) of the span, in order, without a gap."""
    size = _SIZES[step]
    start, end = _floor(start, size), _ceiling(end, size)
    found = {
        row[0]: Usage(row[0], None, *_values(row[1:]))
        for row in _read(f"date_trunc('{step}', at, 'UTC')", scope, start, end, step)
    }
    moments = [start + size * n for n in range((end - start) // size)]
    return [found.get(moment) or Usage(moment) for moment in moments]


def by(what: By, scope: Scope, start: datetime, end: datetime) -> list[Usage]:
    """One for each model, key, …, in ``of``, those with most requests first.

    Requests that got to no route or engine are under 0, or under the empty model.
    """
    rows = _read(what, scope, start, end, None)
    found = [Usage(None, row[0], *_values(row[1:])) for row in rows]
    return sorted(found, key=lambda one: (-one.requests, str(one.of)))


def errors(scope: Scope, start: datetime, end: datetime) -> list[ErrorCount]:
    """How many requests failed and why, the most frequent first."""
    source, values = _source(scope, start, end, None)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT kind, sum(n::int8)::int8 FROM ({source}) AS parts, jsonb_each_text(codes) AS c (kind, n)"
            " WHERE codes IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1",
            values,
        )
        return [ErrorCount(*kind.split(":", 1), count) for kind, count in cursor.fetchall()]


def month_to_date(scope: Scope, now: datetime) -> Usage:
    """Of the calendar month (UTC), as monthly limits count it."""
    now = now.astimezone(UTC)
    return total(scope, now.replace(day=1, hour=0, minute=0, second=0, microsecond=0), now)


def _read(
    what: str, scope: Scope, start: datetime, end: datetime, step: Step | None
) -> list[tuple[Any, ...]]:
    source, values = _source(scope, start, end, step)
    group = f" GROUP BY {what}" if what else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {what + ', ' if what else ''}{_SUMMED} FROM ({source}) AS parts{group}", values
        )
        return cursor.fetchall()


def _values(row: Sequence[Any]) -> list[Any]:
    """A row's sums and histograms; a histogram of nothing is empty."""
    return [value if value is not None else [] for value in row]


def _source(scope: Scope, start: datetime, end: datetime, step: Step | None) -> tuple[str, dict[str, Any]]:
    """SQL that gives the rollups of the span, and its parameters."""
    narrowed, values = scope.conditions
    parts = []
    for number, (level, first, last) in enumerate(_segments(start, end, step, _uptos())):
        values |= {f"from{number}": first, f"to{number}": last}
        where = f"at >= %(from{number})s AND at < %(to{number})s {narrowed}"
        if level == "raw":
            parts.append(from_rows("minute", where))
        else:
            columns = ", ".join((_KEPT, *SUMS, *HISTOGRAMS, "codes"))
            parts.append(f"SELECT {columns} FROM {_TABLES[level]} WHERE {where}")
    if not parts:
        parts = [from_rows("minute", "false")]
    return " UNION ALL ".join(f"({part})" for part in parts), values


def _uptos() -> dict[str, datetime]:
    """How far each level is rolled up."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT level, upto FROM routes_usage_rollup WHERE upto IS NOT NULL")
        return dict(cursor.fetchall())


def _segments(
    start: datetime, end: datetime, step: Step | None, uptos: dict[str, datetime]
) -> Iterator[tuple[str, datetime, datetime]]:
    """(level, from, to) that make up the span, each as coarse as the step, the span's ends and what is rolled
    up allow."""
    levels = [name for name in ("day", "hour", "minute") if step is None or _SIZES[name] <= _SIZES[step]]
    at, end = _floor(start, _SIZES["minute"]), _ceiling(end, _SIZES["minute"])
    while at < end:
        for position, level in enumerate(levels):
            size = _SIZES[level]
            stop = _floor(min(uptos.get(level, at), end), size)
            if position:
                # as far as where a coarser level can take over
                coarser = levels[position - 1]
                next_one = _ceiling(at + timedelta(microseconds=1), _SIZES[coarser])
                if next_one + _SIZES[coarser] <= min(uptos.get(coarser, at), end):
                    stop = min(stop, next_one)
            if _floor(at, size) == at and stop > at:
                yield level, at, stop
                at = stop
                break
        else:
            yield "raw", at, end
            return


def _floor(moment: datetime, size: timedelta) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + (moment.astimezone(UTC) - epoch) // size * size


def _ceiling(moment: datetime, size: timedelta) -> datetime:
    floor = _floor(moment, size)
    return floor if floor == moment else floor + size
