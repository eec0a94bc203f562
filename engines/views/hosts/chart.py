"""The chart of a host's GPU memory over time."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone
from django.utils.translation import gettext as _

from engines.charts.figure import Column, Figure, layout, line
from engines.metrics.window import RANGES
from engines.models import Host

DEFAULT_RANGE = "24h"
#: seconds between two points; hosts are sampled every minute
_STEPS = {"15m": 60, "3h": 60, "24h": 300, "7d": 1800, "30d": 7200}
_TONES = ("accent", "ok", "warn", "busy", "bad", "muted")
_GIB = 1024


def gpu_memory_chart(host: Host, span: str, *, now: datetime | None = None) -> dict[str, Any]:
    """What static/js/charts.js draws: memory in use of each GPU in GiB, a gap where nothing was measured.

    ``span`` is a range of engines.metrics.window; another one counts as the default.
    """
    span = span if span in RANGES else DEFAULT_RANGE
    now, step = now or timezone.now(), _STEPS[span]
    start = now - RANGES[span]
    first, last = int(start.timestamp()) // step, int(now.timestamp()) // step
    places = range(first, last + 1)
    used = _used(host, start, step)
    times = [place * step * 1000 for place in places]
    names = {gpu.get("index"): gpu.get("name") or "GPU" for gpu in host.facts.get("gpus") or []}
    traces, columns = [], []
    for index in sorted(used):
        label = f"{index} · {names.get(index, 'GPU')}"
        values = [used[index].get(place) for place in places]
        tone, dash = _TONES[index % len(_TONES)], "solid" if index < len(_TONES) else "dot"
        traces.append(line(label, times, values, tone=tone, dash=dash, hover="%{y:.1f} GiB"))
        columns.append(Column(f"{label} (GiB)", "number", values))
    shape = layout(
        start,
        now,
        revision=f"gpu/{host.pk}/{span}",
        yaxis={"range": [0, _largest(host)], "ticksuffix": " GiB"},
    )
    figure = Figure(traces, shape, times, columns, _summary(columns), empty=not columns)
    return {**figure.payload(), "refresh_s": 30 if step == 60 else 60, "step_s": step}


def _used(host: Host, start: datetime, step: int) -> dict[int, dict[int, float]]:
    """index -> step number -> GiB in use, the mean of the step's samples."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT index, floor(extract(epoch FROM taken_at) / %s)::bigint AS place,
                   avg(memory_used_mib)::float8
            FROM engines_gpusample
            WHERE host_id = %s AND taken_at >= %s AND memory_used_mib IS NOT NULL
            GROUP BY index, place
            """,
            [step, host.pk, start],
        )
        found: dict[int, dict[int, float]] = defaultdict(dict)
        for index, place, mib in cursor.fetchall():
            found[index][place] = round(mib / _GIB, 2)
    return found


def _largest(host: Host) -> float | None:
    """The top of the axis: the largest card's memory, so that a full one looks full."""
    totals = [gpu["memory_total_mib"] for gpu in host.facts.get("gpus") or [] if gpu.get("memory_total_mib")]
    return round(max(totals) / _GIB * 1.02, 1) if totals else None


def _summary(columns: list[Column]) -> str:
    latest = [
        (column.label, known[-1])
        for column in columns
        if (known := [value for value in column.values if value is not None])
    ]
    return " ".join(_("%(gpu)s: %(now).1f now.") % {"gpu": label, "now": value} for label, value in latest)
