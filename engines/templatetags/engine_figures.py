"""Figures on engine pages: no data is a dash or a word, never a zero."""

from __future__ import annotations

from django import template

register = template.Library()


@register.filter
def figure(value: float | None) -> str:
    """A count with thousands separators; a dash for no data."""
    return "–" if value is None else f"{value:,.0f}"


@register.filter
def milliseconds(value: float | None) -> str:
    """6.3 ms; a dash for no data."""
    if value is None:
        return "–"
    return f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"
