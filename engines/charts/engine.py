"""The charts of one engine."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from engines.charts.figure import Column, Figure, Values, band, layout, limit, line
from engines.metrics.quantile import Quantile
from engines.metrics.series import Percentiles, percentiles, scalars
from engines.metrics.window import Source, Window

_QUANTILES = (0.5, 0.95, 0.99)
_TONES = {0.5: "accent", 0.95: "warn", 0.99: "bad"}


def _known(values: Values) -> list[float]:
    return [value for value in values if value is not None]


def _percents(name: str, values: Values) -> str:
    """What a line of ratios shows, in words."""
    known = _known(values)
    if not known:
        return _("%(name)s: no readings in this range.") % {"name": name}
    return _("%(name)s: from %(low)d%% to %(high)d%%, last %(last)d%%.") % {
        "name": name,
        "low": round(min(known) * 100),
        "high": round(max(known) * 100),
        "last": round(known[-1] * 100),
    }


def _numbers(name: str, values: Values) -> str:
    known = _known(values)
    if not known:
        return _("%(name)s: no readings in this range.") % {"name": name}
    return _("%(name)s: from %(low)s to %(high)s, last %(last)s.") % {
        "name": name,
        "low": f"{min(known):.4g}",
        "high": f"{max(known):.4g}",
        "last": f"{known[-1]:.4g}",
    }


def kv_usage(engine_id: int, window: Window) -> Figure:
    """KV cache usage with its bands; under it, on the same axis of time, running and waiting."""
    series = scalars(engine_id, window, gauges=("kv_usage_ratio", "requests_running", "requests_waiting"))
    usage = series.gauges["kv_usage_ratio"]
    running, waiting = series.gauges["requests_running"], series.gauges["requests_waiting"]
    times = series.times
    traces = []
    columns = [Column(_("KV cache usage"), "percent", usage)]
    if window.source is not Source.RAW:
        peaks = series.peaks["kv_usage_ratio"]
        traces.append(line(_("peak"), times, peaks, tone="faint", hover="%{y:.1%}", width=1, dash="dot"))
        columns.append(Column(_("Peak"), "percent", peaks))
    traces += [
        line(_("KV cache usage"), times, usage, tone="accent", hover="%{y:.1%}"),
        line(pgettext("requests", "running"), times, running, tone="ok", hover="%{y:.3~g}", axis="y2"),
        line(pgettext("requests", "waiting"), times, waiting, tone="bad", hover="%{y:.3~g}", axis="y2"),
    ]
    columns += [
        Column(pgettext("requests", "Running"), "number", running),
        Column(pgettext("requests", "Waiting"), "number", waiting),
    ]
    shape = layout(
        window.start,
        window.end,
        revision="",
        yaxis={
            "domain": [0.36, 1],
            "range": [0, 1.02],
            "tickformat": ".0%",
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
        },
        yaxis2={"domain": [0, 0.28], "rangemode": "tozero", "title": {"text": _("requests")}, "nticks": 4},
    )
    shape["shapes"] = [band(0.7, 0.9), limit(0.5, "faint"), limit(0.9, "bad")]
    shape["xaxis"]["anchor"] = "y2"
    return Figure(
        traces,
        shape,
        times,
        columns,
        " ".join(
            [
                _percents(_("KV cache usage"), usage),
                _numbers(pgettext("requests", "Running"), running),
                _numbers(pgettext("requests", "Waiting"), waiting),
            ]
        ),
        empty=not any((_known(usage), _known(running), _known(waiting))),
    )


def requests(engine_id: int, window: Window) -> Figure:
    """Requests running, waiting, and (where the version says so) waiting for room in the cache."""
    names = {
        "requests_running": (pgettext("requests", "Running"), "ok"),
        "requests_waiting": (pgettext("requests", "Waiting"), "bad"),
        "waiting_capacity": (_("Waiting for cache"), "warn"),
    }
    series = scalars(engine_id, window, gauges=tuple(names))
    traces, columns = [], []
    for name, (label, tone) in names.items():
        values = series.gauges[name]
        if name == "waiting_capacity" and not _known(values):
            continue
        traces.append(line(label, series.times, values, tone=tone, hover="%{y:.3~g}"))
        columns.append(Column(label, "number", values))
    shape = layout(window.start, window.end, revision="", yaxis={"rangemode": "tozero"})
    return Figure(
        traces,
        shape,
        series.times,
        columns,
        " ".join(_numbers(column.label, column.values) for column in columns),
        empty=not any(_known(column.values) for column in columns),
    )


def throughput(engine_id: int, window: Window) -> Figure:
    """Tokens per second, prompt and generation."""
    series = scalars(engine_id, window, counters=("prompt_tokens", "generation_tokens"))
    pairs = (
        (_("Prompt"), series.rates["prompt_tokens"], "accent"),
        (_("Generation"), series.rates["generation_tokens"], "ok"),
    )
    shape = layout(
        window.start,
        window.end,
        revision="",
        yaxis={"rangemode": "tozero", "title": {"text": _("tokens per second")}, "tickformat": "~s"},
    )
    columns = [Column(label, "rate", values) for label, values, _tone in pairs]
    return Figure(
        [line(label, series.times, values, tone=tone, hover="%{y:,.1f}/s") for label, values, tone in pairs],
        shape,
        series.times,
        columns,
        " ".join(_numbers(column.label, column.values) for column in columns),
        empty=not any(_known(column.values) for column in columns),
    )


def prefix_hit_rate(engine_id: int, window: Window) -> Figure:
    """The share of looked-up prompt tokens that were in the prefix cache; old versions say it themselves."""
    series = scalars(
        engine_id,
        window,
        gauges=("prefix_cache_hit_rate_gauge",),
        counters=("prefix_cache_queries", "prefix_cache_hits"),
    )
    rates = [
        gauge if not queries or hits is None else hits / queries
        for gauge, queries, hits in zip(
            series.gauges["prefix_cache_hit_rate_gauge"],
            series.increases["prefix_cache_queries"],
            series.increases["prefix_cache_hits"],
            strict=True,
        )
    ]
    label = _("Prefix hit rate")
    shape = layout(window.start, window.end, revision="", yaxis={"range": [0, 1.02], "tickformat": ".0%"})
    return Figure(
        [line(label, series.times, rates, tone="accent", hover="%{y:.1%}")],
        shape,
        series.times,
        [Column(label, "percent", rates)],
        _percents(label, rates),
        empty=not _known(rates),
    )


def _bucket(found: Quantile | None) -> str:
    """The bucket a percentile lies in, for the reader: it is as exact as that."""
    if found is None:
        return ""
    if found.high == float("inf"):
        return _("over %(low)s s") % {"low": f"{found.low:g}"}
    return _("bucket %(low)s–%(high)s s") % {"low": f"{found.low:g}", "high": f"{found.high:g}"}


def _latency(engine_id: int, window: Window, histogram: str) -> Figure:
    found: Percentiles = percentiles(engine_id, window.for_buckets(), histogram, _QUANTILES)
    traces, columns = [], []
    words = {one and (one.low, one.high): one for q in _QUANTILES for one in found.values[q]}
    buckets = {key: _bucket(one) for key, one in words.items()}
    for q in reversed(_QUANTILES):
        label = f"p{q * 100:g}"
        values: Sequence[float | None] = [None if one is None else one.value for one in found.values[q]]
        traces.append(
            line(
                label,
                found.times,
                values,
                tone=_TONES[q],
                hover="%{y:.3~s}s (%{customdata})",
                extra=[buckets[one and (one.low, one.high)] for one in found.values[q]],
            )
        )
        columns.insert(0, Column(label, "seconds", values))
    columns.append(Column(_("Observations"), "number", found.counts))
    shape = layout(
        window.start,
        window.end,
        revision="",
        yaxis={"rangemode": "tozero", "ticksuffix": "s", "tickformat": "~s"},
    )
    return Figure(
        traces,
        shape,
        found.times,
        columns,
        " ".join(_numbers(column.label, column.values) for column in columns[:3]),
        empty=not any(_known(column.values) for column in columns[:3]),
    )


def ttft(engine_id: int, window: Window) -> Figure:
    """Time to first token."""
    return _latency(engine_id, window, "ttft")


def inter_token(engine_id: int, window: Window) -> Figure:
    """Time between two tokens of a request."""
    return _latency(engine_id, window, "inter_token_latency")


def e2e(engine_id: int, window: Window) -> Figure:
    """Time from a request's arrival to its last token."""
    return _latency(engine_id, window, "e2e_latency")


def queue_time(engine_id: int, window: Window) -> Figure:
    """Time a request waited before it ran."""
    return _latency(engine_id, window, "queue_time")
