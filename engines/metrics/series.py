"""One engine's values over a window, for charts. A time without data is None, so a line breaks there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from engines.metrics.buckets import layouts
from engines.metrics.columns import COUNTERS, GAUGES, HISTOGRAMS, layout_position
from engines.metrics.quantile import Quantile, quantile
from engines.metrics.window import POINTS, Source, Window

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Values = list[float | None]


@dataclass(slots=True)
class Series:
    """``times`` in milliseconds since 1970; every list has as many values.

    ``gauges`` are averages over the step and ``peaks`` their greatest reading; ``rates`` are counters per
    second; ``increases`` what counters grew by in the step.
    """

    times: list[int] = field(default_factory=list)
    gauges: dict[str, Values] = field(default_factory=dict)
    peaks: dict[str, Values] = field(default_factory=dict)
    rates: dict[str, Values] = field(default_factory=dict)
    increases: dict[str, Values] = field(default_factory=dict)


@dataclass(slots=True)
class Percentiles:
    """``times`` in milliseconds; ``values[q]`` the percentile at each, with its bucket; ``counts`` how many
    observations each has."""

    times: list[int] = field(default_factory=list)
    values: dict[float, list[Quantile | None]] = field(default_factory=dict)
    counts: Values = field(default_factory=list)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def scalars(
    engine_id: int, window: Window, *, gauges: Sequence[str] = (), counters: Sequence[str] = ()
) -> Series:
    """Gauges and counters over a window; at most POINTS points (and a few where the line breaks)."""
    unknown = [*(set(gauges) - set(GAUGES)), *(set(counters) - set(COUNTERS))]
    if unknown:
        raise ValueError(f"not kept: {', '.join(sorted(unknown))}")
    if window.source is Source.RAW:
        return _raw(engine_id, window, gauges, counters)
    series = _rolled(engine_id, window, gauges, counters)
    if window.live:
        _add_newest(engine_id, window, series, gauges)
    return series


def _raw(engine_id: int, window: Window, gauges: Sequence[str], counters: Sequence[str]) -> Series:
    columns = ", ".join(("process_start", *gauges, *counters))
    broken = timedelta(seconds=2.5 * window.step_s + 3)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT taken_at, {columns} FROM engines_sample"
            " WHERE engine_id = %s AND taken_at >= %s AND taken_at <= %s ORDER BY taken_at",
            [engine_id, window.start - broken, window.end],
        )
        rows = cursor.fetchall()
    # an interval that was shorter before would give more points than asked for
    every = -(-len(rows) // POINTS) if len(rows) > POINTS * 1.1 else 1
    rows = rows[::every]
    series = _empty(gauges, counters)
    before: tuple[Any, ...] | None = None
    for row in rows:
        if row[0] >= window.start:
            if before is not None and row[0] - before[0] > broken * every:
                _append(series, _ms(before[0]) + 1, None, None, gauges, counters, 0)
            _append(series, _ms(row[0]), row, before, gauges, counters, 2)
        before = row
    return series


def _empty(gauges: Sequence[str], counters: Sequence[str]) -> Series:
    return Series(
        [],
        {name: [] for name in gauges},
        {},
        {name: [] for name in counters},
        {name: [] for name in counters},
    )


def _append(
    series: Series,
    at: int,
    row: tuple | None,
    before: tuple | None,
    gauges: Sequence[str],
    counters: Sequence[str],
    first: int,
) -> None:
    series.times.append(at)
    for place, name in enumerate(gauges, first):
        series.gauges[name].append(row[place] if row else None)
    for place, name in enumerate(counters, first + len(gauges)):
        grown = rate = None
        if row and before and row[place] is not None and before[place] is not None:
            anew = row[1] != before[1] or row[place] < before[place]
            grown = row[place] if anew else row[place] - before[place]
            seconds = (row[0] - before[0]).total_seconds()
            rate = grown / seconds if seconds > 0 else None
        series.increases[name].append(grown)
        series.rates[name].append(rate)


def _relation(window: Window, columns: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """SQL of the rows to read, as (t, samples, covered_s, columns), and its parameters.

    Hours are complete only up to the rollup's mark: the rest comes from minutes.
    """
    wanted = ", ".join(("samples", "covered_s", *columns))
    minutes = (
        f"SELECT minute AS t, {wanted} FROM engines_minute"
        " WHERE engine_id = %(engine)s AND minute >= %(from)s AND minute < %(end)s"
    )
    parameters: dict[str, Any] = {"from": window.start, "end": window.end}
    if window.source is Source.MINUTE:
        return minutes, parameters
    with connection.cursor() as cursor:
        cursor.execute("SELECT upto FROM engines_rollup WHERE level = 'hour'")
        upto = cursor.fetchone()[0] or window.start
    parameters["from"] = max(upto, window.start)
    parameters |= {"start": window.start.replace(minute=0, second=0, microsecond=0), "upto": upto}
    hours = (
        f"SELECT hour AS t, {wanted} FROM engines_hour"
        " WHERE engine_id = %(engine)s AND hour >= %(start)s AND hour < LEAST(%(upto)s, %(end)s)"
    )
    return f"{hours} UNION ALL {minutes}", parameters


def _bins(window: Window) -> list[datetime]:
    """The start of every step that touches the window."""
    step = window.step_s
    first = (window.start - _EPOCH).total_seconds() // step
    last = -(-(window.end - _EPOCH).total_seconds() // step)
    return [_EPOCH + timedelta(seconds=number * step) for number in range(int(first), int(last))]


def _rolled(engine_id: int, window: Window, gauges: Sequence[str], counters: Sequence[str]) -> Series:
    columns = [*(f"{name}_{what}" for name in gauges for what in ("avg", "max")), *counters]
    relation, parameters = _relation(window, columns)
    selected = []
    for name in gauges:
        weight = f"sum(samples) FILTER (WHERE {name}_avg IS NOT NULL)"
        selected += [f"sum({name}_avg * samples) / {weight}", f"max({name}_max)"]
    selected += [f"sum({name})" for name in counters]
    # not every row has a time it grew in: the first of an engine
    selected += [f"sum(covered_s) FILTER (WHERE {name} IS NOT NULL)" for name in counters]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT date_bin(%(step)s, t, %(epoch)s) AS bin, {', '.join(selected)}"
            f" FROM ({relation}) AS r GROUP BY bin",
            {"engine": engine_id, "step": timedelta(seconds=window.step_s), "epoch": _EPOCH, **parameters},
        )
        found = {row[0]: row[1:] for row in cursor.fetchall()}
    bins = _bins(window)
    nothing = (None,) * len(selected)
    rows = [found.get(one, nothing) for one in bins]
    middle = round(window.step_s * 500)
    columns_of = list(zip(*rows, strict=True)) if rows else [()] * len(selected)
    after = 2 * len(gauges)
    series = Series([_ms(one) + middle for one in bins])
    for place, name in enumerate(gauges):
        series.gauges[name] = list(columns_of[2 * place])
        series.peaks[name] = list(columns_of[2 * place + 1])
    for place, name in enumerate(counters, after):
        grown, covered = columns_of[place], columns_of[place + len(counters)]
        series.increases[name] = list(grown)
        series.rates[name] = [
            None if g is None or not c else g / c for g, c in zip(grown, covered, strict=True)
        ]
    return series


def _add_newest(engine_id: int, window: Window, series: Series, gauges: Sequence[str]) -> None:
    """End a short window with the newest reading: rollups are up to two minutes behind.

    The steps of those minutes are empty, and not for want of data: they are left out.
    """
    if not gauges:
        return
    while series.times and all(values[-1] is None for values in series.gauges.values()):
        if series.times[-1] < _ms(window.end) - 150_000:
            break
        series.times.pop()
        for values in (series.gauges, series.peaks, series.rates, series.increases):
            for one in values.values():
                one.pop()
    fresh = window.end - timedelta(seconds=150)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT taken_at{''.join(f', {name}' for name in gauges)} FROM engines_sample"
            " WHERE engine_id = %s AND taken_at > %s AND taken_at <= %s ORDER BY taken_at DESC LIMIT 1",
            [engine_id, fresh, window.end],
        )
        row = cursor.fetchone()
    if row is None or (series.times and _ms(row[0]) <= series.times[-1]):
        return
    series.times.append(_ms(row[0]))
    for place, name in enumerate(gauges, 1):
        series.gauges[name].append(row[place])
        series.peaks[name].append(row[place])
    for values in (series.rates, series.increases):
        for one in values.values():
            one.append(None)


def percentiles(engine_id: int, window: Window, histogram: str, quantiles: Sequence[float]) -> Percentiles:
    """Percentiles of a histogram at each step of a window, as Prometheus's histogram_quantile gives them.

    Where the buckets' bounds changed within a step, those with more observations count.
    """
    if histogram not in HISTOGRAMS:
        raise ValueError(f"not kept: {histogram}")
    place = layout_position(histogram)
    relation, parameters = _relation(window, ("layouts", histogram))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT date_bin(%(step)s, t, %(epoch)s), layouts[{place}], engines_counts_sum({histogram})"
            f" FROM ({relation}) AS r WHERE {histogram} IS NOT NULL GROUP BY 1, 2",
            {"engine": engine_id, "step": timedelta(seconds=window.step_s), "epoch": _EPOCH, **parameters},
        )
        rows = cursor.fetchall()
    bounds = layouts({row[1] for row in rows})
    found: dict[datetime, tuple[int, list[int]]] = {}
    for moment, layout, counts in rows:
        if moment not in found or counts[-1] > found[moment][1][-1]:
            found[moment] = (layout, counts)
    bins = _bins(window)
    if window.end - window.start <= timedelta(hours=6):
        # the last minutes are not rolled up yet: that is no gap
        while bins and bins[-1] not in found and window.end - bins[-1] < timedelta(seconds=150):
            bins.pop()
    middle = round(window.step_s * 500)
    result = Percentiles([_ms(one) + middle for one in bins], {q: [] for q in quantiles})
    for one in bins:
        layout, counts = found.get(one, (0, []))
        result.counts.append(float(counts[-1]) if counts else None)
        for q in quantiles:
            result.values[q].append(quantile(q, bounds.get(layout, ()), counts) if counts else None)
    return result


def window_percentile(
    engine_id: int, start: datetime, end: datetime, histogram: str, q: float
) -> Quantile | None:
    """One percentile over all observations of whole minutes from ``start`` to ``end``."""
    span = max((end - start).total_seconds(), 60)
    whole = Window(start, end, Source.MINUTE, span)
    place = layout_position(histogram)
    relation, parameters = _relation(whole, ("layouts", histogram))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT layouts[{place}], engines_counts_sum({histogram}) FROM ({relation}) AS r"
            f" WHERE {histogram} IS NOT NULL GROUP BY 1",
            {"engine": engine_id, **parameters},
        )
        rows = cursor.fetchall()
    if not rows:
        return None
    layout, counts = max(rows, key=lambda row: row[1][-1])
    return quantile(q, layouts([layout]).get(layout, ()), counts)
