"""The data of charts, as JSON for static/js/charts.js."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import orjson
from django.conf import settings
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from engines.charts.registry import CHARTS, figure
from engines.metrics.schedule import MANY, interval_for
from engines.metrics.window import RANGES, Keep, Window, window
from engines.models import Engine, Transition
from kvadmin.views.base import PermissionView

DEFAULT_RANGE = "3h"
#: the least that a range shows, also of an engine that has only just begun
SHORTEST = timedelta(minutes=5)


class BadRange(ValueError):
    """The address asks for a span that cannot be shown; the message says what to ask for."""


def _moment(text: str) -> datetime:
    """A moment in ISO 8601, or in seconds since 1970."""
    try:
        if text.replace(".", "", 1).isdigit():
            return datetime.fromtimestamp(float(text), UTC)
        moment = parse_datetime(text.replace(" ", "+"))
    except (ValueError, OverflowError, OSError):
        moment = None
    if moment is None:
        raise BadRange(_("Give from and to as a date and time, such as 2026-05-04T12:00:00Z."))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def window_of(params: QueryDict, *, now: datetime, since: datetime | None = None) -> tuple[Window, str]:
    """The window that ``range``, or ``from`` and ``to``, asks for; and a name that stays while the reader
    looks at the same. Raises BadRange.

    A range reaches back no further than ``since``, where the engine's life began, but for SHORTEST.
    """
    keep = Keep(timedelta(hours=settings.KVADMIN_KEEP_RAW_H), timedelta(days=settings.KVADMIN_KEEP_MINUTES_D))
    many = Engine.objects.pollable().count() > MANY
    interval = interval_for(MANY + 1 if many else 1)
    if params.get("from"):
        start = _moment(params["from"])
        end = _moment(params["to"]) if params.get("to") else now
        if start >= end:
            raise BadRange(_("The span's end must be after its beginning."))
        if end - start > timedelta(days=settings.KVADMIN_KEEP_HOURS_D):
            raise BadRange(_("The span is longer than readings are kept."))
        return window(start, end, now=now, interval_s=interval, keep=keep), f"{start}/{params.get('to', '')}"
    name = params.get("range") or DEFAULT_RANGE
    if name not in RANGES:
        raise BadRange(_("Choose a range out of %(ranges)s.") % {"ranges": ", ".join(RANGES)})
    start = now - RANGES[name]
    if since is not None:
        start = max(start, min(since, now - SHORTEST))
    return window(start, now, now=now, interval_s=interval, keep=keep), name


def _fingerprint(engine: Engine, name: str, span: Window, asked: str, now: datetime) -> str:
    """Changes when the chart does: with a reading (short spans), a rollup, or a transition."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT array_agg(upto ORDER BY level) FROM engines_rollup")
        upto = cursor.fetchone()[0]
    newest = Transition.objects.filter(engine=engine).order_by("-id").values_list("id", flat=True).first()
    # time passes also for an engine that is silent: its gap grows
    tick = int(now.timestamp() // max(30, min(span.step_s, 300)))
    parts: list[Any] = [engine.pk, name, asked, tick, upto, newest, get_language()]
    if span.live:
        parts.append(engine.answered_at)
    return f'"{hashlib.sha256(repr(parts).encode()).hexdigest()[:24]}"'


class EngineChart(PermissionView):
    """GET: {"data", "layout", "table", "summary", "empty", "updated", "refresh_s", "step_s"}.

    304 when nothing changed since the ETag that the request names.
    """

    permission: ClassVar[str] = "engine.view"

    def get(self, request: HttpRequest, pk: int, name: str) -> HttpResponse:
        if name not in CHARTS:
            raise Http404
        engine = Engine.objects.visible_to(request.user).filter(pk=pk).first()
        if engine is None:
            raise Http404
        now = timezone.now()
        try:
            first = engine.starts.order_by("number").values_list("created_at", flat=True).first()
            span, asked = window_of(request.GET, now=now, since=first)
        except BadRange as error:
            return JsonResponse({"detail": str(error)}, status=400)
        fingerprint = _fingerprint(engine, name, span, asked, now)
        if request.headers.get("If-None-Match") == fingerprint:
            response = HttpResponse(status=304)
        else:
            payload = figure(name, engine.pk, span, revision=f"{name}/{asked}").payload()
            payload |= {
                "updated": engine.answered_at.isoformat() if engine.answered_at else None,
                "refresh_s": span.refresh_s,
                "step_s": span.step_s,
            }
            response = HttpResponse(
                orjson.dumps(payload, option=orjson.OPT_NON_STR_KEYS), content_type="application/json"
            )
        response["ETag"] = fingerprint
        response["Cache-Control"] = "private, no-cache"
        return response


urlpatterns: list[URLPattern] = [
    path("engines/<int:pk>/charts/<slug:name>.json", EngineChart.as_view(), name="engine_chart"),
]
