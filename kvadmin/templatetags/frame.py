"""Filters and tags that the page frame and its components use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.forms import BoundField, CheckboxInput, Select
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

register = template.Library()

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@register.filter
def is_checkbox(field: BoundField) -> bool:
    """True for a single checkbox: its label stands after it."""
    return isinstance(field.field.widget, CheckboxInput)


@register.filter
def is_optional(field: BoundField) -> bool:
    """True for a field that may stay empty; a choice says so among its options.

    A field with ``needed_where_shown`` may stay empty only where it is not shown.
    """
    if getattr(field.field, "needed_where_shown", False):
        return False
    return not field.field.required and not isinstance(field.field.widget, Select)


@register.filter(name="bytes")
def bytes_iec(value: float | None) -> str:
    """15.3 GiB; a dash for no value."""
    if value is None or value == "":
        return "–"
    size, unit = float(value), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 100 else f"{size:.1f} {_UNITS[unit]}"


@register.filter
def percent(value: float | None) -> str:
    """76% of 0.76; "no data" for None."""
    return _("no data") if value is None or value == "" else f"{float(value) * 100:.0f}%"


@register.filter
def meter_width(value: float | None) -> str:
    """0 to 100, a full stop for the decimal point in every language: an SVG attribute."""
    return f"{min(max(float(value or 0), 0.0), 1.0) * 100:.2f}"


@register.filter
def iso(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="seconds")


def duration_text(span: timedelta) -> str:
    """A length of time in at most two units: 3 d 4 h, 12 min, 4 s."""
    seconds = max(int(span.total_seconds()), 0)
    if seconds < 60:
        return _("%(n)d s") % {"n": seconds}
    minutes = seconds // 60
    if minutes < 60:
        return _("%(n)d min") % {"n": minutes}
    hours = minutes // 60
    if hours < 24:
        rest = minutes % 60
        if rest:
            return _("%(h)d h %(m)d min") % {"h": hours, "m": rest}
        return _("%(n)d h") % {"n": hours}
    days, rest = divmod(hours, 24)
    if rest and days < 14:
        return _("%(d)d d %(h)d h") % {"d": days, "h": rest}
    return ngettext("%(n)d day", "%(n)d days", days) % {"n": days}


@register.filter
def duration(value: timedelta | float | None) -> str:
    """A timedelta, or seconds, in words."""
    if value is None or value == "":
        return "–"
    return duration_text(value if isinstance(value, timedelta) else timedelta(seconds=float(value)))


@register.filter
def ago(value: datetime | None) -> str:
    """How long ago (or, for the future, in how long) one unit long: 4 s ago."""
    if value is None:
        return "–"
    seconds = int((timezone.now() - value).total_seconds())
    sign, size = seconds < 0, abs(seconds)
    unit = 1 if size < 60 else 60 if size < 3600 else 3600 if size < 86400 else 86400
    words = {
        1: (_("%(n)d s ago"), _("in %(n)d s")),
        60: (_("%(n)d min ago"), _("in %(n)d min")),
        3600: (_("%(n)d h ago"), _("in %(n)d h")),
        86400: (_("%(n)d d ago"), _("in %(n)d d")),
    }
    return words[unit][sign] % {"n": size // unit}


@register.filter
def took(row: Any) -> str:
    """How long something with started_at and finished_at took, or has taken so far."""
    if row.started_at is None:
        return ""
    return duration_text((row.finished_at or timezone.now()) - row.started_at)


@register.simple_tag
def step_label(operation: Any, step: Any) -> str:
    """A step's label in the reader's language; the stored name for a kind no longer known."""
    from engines.operations.base import flow_for

    try:
        steps = flow_for(operation.kind).steps
    except KeyError:
        return step.name
    return next((str(known.label) for known in steps if known.name == step.name), step.name)


@register.simple_tag(takes_context=True)
def query(context: dict[str, Any], **changes: Any) -> str:
    """The present query string with some parameters changed; None removes one. Starts with "?"."""
    params = context["request"].GET.copy()
    params.pop("after", None)
    params.pop("before", None)
    for name, value in changes.items():
        if value is None:
            params.pop(name, None)
        else:
            params[name] = str(value)
    return "?" + params.urlencode()


@register.filter
def may(user: Any, permission: str) -> bool:
    """``{% if user|may:"host.change" %}``."""
    return bool(getattr(user, "is_authenticated", False)) and user.may(permission)
