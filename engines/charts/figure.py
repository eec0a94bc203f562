"""Pieces of a figure that every chart uses. Plain dictionaries in Plotly's own terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Trace = dict[str, Any]
Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table beside a chart; ``format``: percent, number, rate or seconds."""

    label: str
    format: str
    values: Values


@dataclass(slots=True)
class Figure:
    """A chart's data: traces, layout, the same as a table, and a sentence that says what it shows."""

    data: list[Trace]
    layout: dict[str, Any]
    times: list[int]
    columns: list[Column]
    summary: str
    empty: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def payload(self) -> dict[str, Any]:
        rows = [
            [at, *(column.values[place] for column in self.columns)]
            for place, at in enumerate(self.times)
            if any(column.values[place] is not None for column in self.columns)
        ]
        return {
            "data": self.data,
            "layout": self.layout,
            "table": {
                "columns": [{"label": column.label, "format": column.format} for column in self.columns],
                "rows": rows,
            },
            "summary": self.summary,
            "empty": self.empty,
            **self.extra,
        }


def line(
    name: str,
    times: Sequence[int],
    values: Values,
    *,
    tone: str,
    hover: str,
    dash: str = "solid",
    width: float = 1.8,
    axis: str = "y",
    extra: Sequence[Any] | None = None,
    step: bool = False,
) -> Trace:
    """A line that breaks where there is no value. ``hover`` is Plotly's hovertemplate for one point."""
    trace: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(times),
        "y": list(values),
        "yaxis": axis,
        "connectgaps": False,
        "line": {"width": width, "dash": dash, "shape": "hv" if step else "linear"},
        "hovertemplate": f"{hover}<extra>%{{fullData.name}}</extra>",
        "meta": {"tone": tone},
    }
    if _lonely(values):
        trace["mode"] = "lines+markers"
        trace["marker"] = {"size": 4}
    if extra is not None:
        trace["customdata"] = list(extra)
    return trace


def _lonely(values: Values) -> bool:
    """True if a value stands alone between gaps: a line alone would not show it."""
    count = len(values)
    return any(
        value is not None
        and (place == 0 or values[place - 1] is None)
        and (place == count - 1 or values[place + 1] is None)
        for place, value in enumerate(values)
    )


def limit(value: float, tone: str, axis: str = "y") -> dict[str, Any]:
    """A horizontal line over the whole width."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "yref": axis,
        "y0": value,
        "y1": value,
        "layer": "below",
        "line": {"width": 1, "dash": "dash"},
        "name": f"tone:{tone}",
    }


def band(low: float, high: float, axis: str = "y") -> dict[str, Any]:
    """The healthy range, behind everything."""
    return {
        "type": "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "yref": axis,
        "y0": low,
        "y1": high,
        "layer": "below",
        "line": {"width": 0},
        "name": "fill:band",
    }


def mark(at: int, text: str, tone: str, *, left: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """A vertical line at a moment (milliseconds), and its words: (shape, annotation).

    ``left`` puts the words before the line: near the right edge they would be cut off.
    """
    shape = {
        "type": "line",
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "x0": at,
        "x1": at,
        "line": {"width": 1, "dash": "dot"},
        "name": f"tone:{tone}",
    }
    words = {
        "x": at,
        "yref": "paper",
        "y": 1,
        "yanchor": "bottom",
        "xanchor": "right" if left else "left",
        "showarrow": False,
        "text": text,
        "font": {"size": 11},
        "name": f"tone:{tone}",
    }
    return shape, words


def layout(start: datetime, end: datetime, *, revision: str, **axes: dict[str, Any]) -> dict[str, Any]:
    """A layout over a span of time. The same ``revision`` at the next update keeps the reader's zoom."""
    return {
        "uirevision": revision,
        "hovermode": "x unified",
        "showlegend": True,
        # at the foot of the chart, below an axis whose date may take a second line
        "legend": {"orientation": "h", "x": 0, "yref": "container", "y": 0.01, "yanchor": "bottom"},
        "margin": {"l": 52, "r": 12, "t": 22, "b": 68},
        "dragmode": "zoom",
        "xaxis": {
            "type": "date",
            "range": [round(start.timestamp() * 1000), round(end.timestamp() * 1000)],
            "showgrid": False,
        },
        "shapes": [],
        "annotations": [],
        **axes,
    }
