"""Audit: what was done, by whom; for administrators."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator

import django_filters
from django import forms
from django.conf import settings
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from kvadmin.models import AuditEvent
from kvadmin.streaming import PieceByPiece
from kvadmin.templatetags.audit import attach_subjects
from kvadmin.views.base import PermissionView, keyset_page


class DateTimeInput(forms.DateTimeInput):
    input_type = "datetime-local"

    def __init__(self) -> None:
        super().__init__(format="%Y-%m-%dT%H:%M")


class AuditFilter(django_filters.FilterSet):
    person = django_filters.CharFilter(label=_("Who"), field_name="actor_name", lookup_expr="icontains")
    verb = django_filters.CharFilter(label=_("What"), field_name="verb", lookup_expr="icontains")
    subject = django_filters.CharFilter(label=_("On what"), method="by_subject")
    since = django_filters.DateTimeFilter(
        label=_("From (UTC)"), field_name="at", lookup_expr="gte", widget=DateTimeInput()
    )
    until = django_filters.DateTimeFilter(
        label=_("Until (UTC)"), field_name="at", lookup_expr="lte", widget=DateTimeInput()
    )

    class Meta:
        model = AuditEvent
        fields: list[str] = []

    def by_subject(self, rows: QuerySet[AuditEvent], name: str, value: str) -> QuerySet[AuditEvent]:
        return rows.filter(Q(subject_name__icontains=value) | Q(subject_type__iendswith=f".{value}"))


def filtered(request: HttpRequest) -> AuditFilter:
    return AuditFilter(request.GET, queryset=AuditEvent.objects.all())


class AuditListView(PermissionView):
    permission = "audit.view"

    def get(self, request: HttpRequest) -> HttpResponse:
        found = filtered(request)
        rows = found.qs if found.is_valid() else AuditEvent.objects.none()
        page = keyset_page(rows, request.GET)
        attach_subjects(page.rows)
        return render(
            request, "audit/list.html", {"filter": found, "page": page, "days": settings.KVADMIN_KEEP_AUDIT_D}
        )


class _Line:
    """A file for csv.writer that hands back what is written."""

    def write(self, text: str) -> str:
        return text


COLUMNS = ("time", "who", "what", "subject_type", "subject_id", "subject", "before", "after", "source", "ip")


def safe_cell(text: str) -> str:
    """A spreadsheet must not take a name that somebody chose for a formula."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text


def csv_lines(events: QuerySet[AuditEvent]) -> Iterator[str]:
    writer = csv.writer(_Line())
    yield writer.writerow(COLUMNS)
    for event in events.iterator(chunk_size=1000):
        values = (
            event.at.isoformat(timespec="seconds"),
            event.actor_name,
            event.verb,
            event.subject_type,
            event.subject_id,
            event.subject_name,
            json.dumps(event.before, ensure_ascii=False),
            json.dumps(event.after, ensure_ascii=False),
            event.source,
            event.ip or "",
        )
        yield writer.writerow([safe_cell(value) for value in values])


class AuditExportView(PermissionView):
    """The filtered events as CSV, the newest first, streamed."""

    permission = "audit.view"

    def get(self, request: HttpRequest) -> HttpResponse | PieceByPiece:
        found = filtered(request)
        rows = found.qs if found.is_valid() else AuditEvent.objects.none()
        response = PieceByPiece(csv_lines(rows), content_type="text/csv; charset=utf-8")
        day = timezone.now().date().isoformat()
        response["Content-Disposition"] = f'attachment; filename="kvadmin-audit-{day}.csv"'
        return response


urlpatterns = [
    path("audit/", AuditListView.as_view(), name="audit_list"),
    path("audit/export/", AuditExportView.as_view(), name="audit_export"),
]
