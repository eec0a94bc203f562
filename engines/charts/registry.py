"""Which charts there are, and the figure of one for an engine with its marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext as _

from engines.charts import engine as charts
from engines.charts.figure import Figure, mark
from engines.choices import EngineState
from engines.metrics.window import Window
from engines.models import Transition

#: name in the address -> what builds it from an engine's id and a window
CHARTS: dict[str, Callable[[int, Window], Figure]] = {
    "kv_usage": charts.kv_usage,
    "requests": charts.requests,
    "throughput": charts.throughput,
    "ttft": charts.ttft,
    "inter_token": charts.inter_token,
    "e2e": charts.e2e,
    "queue_time": charts.queue_time,
    "prefix_hit_rate": charts.prefix_hit_rate,
}

#: marks beyond this many would hide the lines
_MARKS = 20

_MARKED = {
    EngineState.READY: "ok",
    EngineState.STOPPED: "muted",
    EngineState.FAILED: "bad",
    EngineState.UNREACHABLE: "warn",
}


def marks(engine_id: int, window: Window) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Starts and stops within a window, as vertical lines; the newest if there are too many."""
    rows = (
        Transition.objects.filter(
            engine_id=engine_id, at__gte=window.start, at__lte=window.end, to_state__in=list(_MARKED)
        )
        .order_by("-at")
        .select_related("start__revision")[:_MARKS]
    )
    result = []
    for row in reversed(rows):
        text = str(EngineState(row.to_state).label)
        revision = row.start.revision if row.start else None
        if row.to_state == EngineState.READY and revision is not None:
            text = _("%(state)s, revision %(number)d") % {"state": text, "number": revision.number}
        late = (row.at - window.start) / (window.end - window.start) > 0.75
        tone = _MARKED[EngineState(row.to_state)]
        result.append(mark(round(row.at.timestamp() * 1000), text, tone, left=late))
    return result


def figure(name: str, engine_id: int, window: Window, *, revision: str) -> Figure:
    """A chart with its marks. ``revision`` stays the same while the reader's zoom should. KeyError for a
    name that is no chart."""
    built = CHARTS[name](engine_id, window)
    built.layout["uirevision"] = revision
    for shape, words in marks(engine_id, window):
        built.layout["shapes"].append(shape)
        built.layout["annotations"].append(words)
    return built
