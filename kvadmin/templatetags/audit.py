"""How the audit page shows an event."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django import template
from django.apps import apps
from django.utils.html import format_html

from kvadmin.models import AuditEvent

register = template.Library()


@dataclass(frozen=True)
class Change:
    name: str
    before: str
    after: str


def _text(value: Any) -> str:
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


@register.filter
def changes(event: AuditEvent) -> list[Change]:
    """The keys whose value differs, in order; a key of one side only has an empty other side."""
    before, after = event.before or {}, event.after or {}
    return [
        Change(name, _text(before.get(name)), _text(after.get(name)))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


@register.filter
def subject_link(event: AuditEvent) -> str:
    """The subject's name, linked to its page where it still exists and has one."""
    if not event.subject_type:
        return ""
    subject = getattr(event, "subject_row", None)
    if subject is not None and hasattr(subject, "get_absolute_url"):
        return format_html('<a href="{}">{}</a>', subject.get_absolute_url(), event.subject_name)
    return event.subject_name


def attach_subjects(events: list[AuditEvent]) -> None:
    """Put ``subject_row`` on each event whose subject still exists: one query for each kind of row."""
    wanted: dict[str, set[str]] = {}
    for event in events:
        wanted.setdefault(event.subject_type, set()).add(event.subject_id)
    found: dict[tuple[str, str], Any] = {}
    for label, ids in wanted.items():
        try:
            model = apps.get_model(label)
        except (LookupError, ValueError):
            continue
        for row in model._default_manager.filter(pk__in=[value for value in ids if value.isdigit()]):
            found[label, str(row.pk)] = row
    for event in events:
        event.subject_row = found.get((event.subject_type, event.subject_id))
