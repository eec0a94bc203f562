"""Small charts that the server draws."""

from __future__ import annotations

from collections.abc import Sequence

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

register = template.Library()

_WIDTH, _HEIGHT = 256, 44
_MARGIN = 2


def _y(value: float) -> float:
    return _HEIGHT - _MARGIN - min(max(value, 0.0), 1.0) * (_HEIGHT - 2 * _MARGIN)


def _runs(values: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    """The points of each unbroken stretch: a gap stays a gap."""
    step = _WIDTH / max(len(values) - 1, 1)
    runs: list[list[tuple[float, float]]] = []
    open_run = False
    for place, value in enumerate(values):
        if value is None:
            open_run = False
            continue
        if not open_run:
            runs.append([])
            open_run = True
        runs[-1].append((place * step, _y(value)))
    return runs


def _path(points: list[tuple[float, float]]) -> str:
    if len(points) == 1:  # a lone reading is a short dash
        x, y = points[0]
        points = [(x, y), (x + 1.5, y)]
    return "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points)


@register.simple_tag
def sparkline(values: Sequence[float | None], label: str = "", tone: str = "") -> SafeString:
    """KV cache usage (0 to 1, None for no data), oldest first, with the healthy band behind it.

    ``tone`` is a class (``warn``, ``bad``). An empty list, or one without a value, draws nothing.
    """
    runs = _runs(values or [])
    known = [value for value in values or [] if value is not None]
    if not label:
        label = _("KV cache usage, last hour")
    if known:
        extent = _("%(low)d%% to %(high)d%%, now %(last)d%%") % {
            "low": round(min(known) * 100),
            "high": round(max(known) * 100),
            "last": round(known[-1] * 100),
        }
    else:
        extent = _("no data")
    lines = [(_path(run), run[0][0], run[-1][0]) for run in runs]
    areas = format_html_join(
        "",
        '<path class="area" d="{} L{},{} L{},{} Z"/>',
        ((d, f"{end:.1f}", _HEIGHT, f"{start:.1f}", _HEIGHT) for d, start, end in lines),
    )
    strokes = format_html_join(
        "", '<path class="line" d="{}" vector-effect="non-scaling-stroke"/>', ((d,) for d, _s, _e in lines)
    )
    band = format_html(
        '<rect class="band" y="{}" width="{}" height="{}"/>',
        f"{_y(0.9):.1f}",
        _WIDTH,
        f"{_y(0.7) - _y(0.9):.1f}",
    )
    return format_html(
        '<svg class="spark{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}: {}">'
        "{}{}{}</svg>",
        f" {tone}" if tone else "",
        _WIDTH,
        _HEIGHT,
        label,
        extent,
        band if known else "",
        areas,
        strokes,
    )
