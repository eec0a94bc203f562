"""What a key, a route or a team consumed: figures, tables and the data of charts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Any, ClassVar

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from engines.charts.figure import Column, Figure, layout, line
from engines.metrics.quantile import Quantile
from kvadmin.models import Team
from kvadmin.views.base import PermissionView
from routes.models import Business, Key, Route
from routes.usage import read
from routes.usage.read import Scope, Step, Usage


@dataclass(frozen=True)
class Span:
    """A range that usage is looked at over, and how finely its charts are drawn."""

    label: Any
    length: timedelta
    step: Step


SPANS = {
    "24h": Span(gettext_lazy("24 h"), timedelta(hours=24), "hour"),
    "7d": Span(gettext_lazy("7 d"), timedelta(days=7), "hour"),
    "30d": Span(gettext_lazy("30 d"), timedelta(days=30), "day"),
    "1y": Span(gettext_lazy("1 year"), timedelta(days=365), "day"),
}
DEFAULT = "24h"
LAYERS = {
    "caller": gettext_lazy("Caller"),
    "gateway": gettext_lazy("Gateway"),
    "engine": gettext_lazy("Engine"),
}
_PERCENTILES = (0.5, 0.95, 0.99)


def usage_context(request: HttpRequest, scope: Scope, charts: str, by: read.By = "model") -> dict[str, Any]:
    """For routes/_usage.html. ``charts`` is the address of the charts, without its last part."""
    name = request.GET.get("range", DEFAULT)
    name = name if name in SPANS else DEFAULT
    end = timezone.now()
    start = end - SPANS[name].length
    total = read.total(scope, start, end)
    return {
        "usage": total,
        "span": name,
        "spans": [(value, span.label) for value, span in SPANS.items()],
        "percentiles": [
            (f"P{q * 100:g}", quantile_text(total.latency_at(q)), quantile_text(total.first_byte_at(q)))
            for q in _PERCENTILES
        ],
        "rows": named(by, read.by(by, scope, start, end)) if total.requests else [],
        "errors": [
            {"layer": LAYERS.get(error.layer, error.layer), "code": error.code, "requests": error.requests}
            for error in read.errors(scope, start, end)
        ],
        "usage_charts": f"{charts}{name}/",
    }


def quantile_text(found: Quantile | None) -> str:
    """1.2 s (1 to 1.5 s): with the bucket that it lies in."""
    if found is None:
        return "–"
    if found.high == inf:
        return _("over %(low)s s") % {"low": f"{found.low:g}"}
    numbers = {"value": f"{found.value:.2g}", "low": f"{found.low:g}", "high": f"{found.high:g}"}
    return _("%(value)s s (%(low)s to %(high)s s)") % numbers


def named(by: read.By, rows: list[Usage]) -> list[dict[str, Any]]:
    """Each sum with the name of what it is of, and its page."""
    if by == "model":
        return [{"name": row.of or _("no model"), "url": "", "usage": row} for row in rows]
    model = {"key_id": Key, "business_id": Business, "team_id": Team, "route_id": Route}[by]
    found = model.objects.in_bulk([row.of for row in rows if row.of])
    return [
        {
            "name": str(found[row.of]) if row.of in found else _("removed (%(id)s)") % {"id": row.of},
            "url": found[row.of].get_absolute_url() if row.of in found else "",
            "usage": row,
        }
        for row in rows
    ]


def usage_figure(what: str, scope: Scope, span: Span, *, now: datetime, revision: str) -> dict[str, Any]:
    """What static/js/charts.js draws: ``requests``, ``tokens`` or ``latency`` over the span."""
    rows = read.by_time(scope, now - span.length, now, span.step)
    times = [round(row.at.timestamp() * 1000) for row in rows if row.at is not None]
    series = _SERIES[what](rows)
    traces = [
        line(label, times, values, tone=tone, hover=hover, step=what != "latency")
        for label, values, tone, hover in series
    ]
    kind = "seconds" if what == "latency" else "number"
    columns = [Column(label, kind, values) for label, values, _tone, _hover in series]
    axis = {"rangemode": "tozero", **({"ticksuffix": " s"} if what == "latency" else {})}
    shape = layout(now - span.length, now, revision=f"{revision}/{what}", yaxis=axis)
    empty = not any(row.requests for row in rows)
    summary = _("%(n)d requests in this range.") % {"n": sum(row.requests for row in rows)}
    figure = Figure(traces, shape, times, columns, "" if empty else summary, empty=empty)
    return {**figure.payload(), "refresh_s": 60}


_Series = list[tuple[str, list[float | None], str, str]]


def _requests(rows: list[Usage]) -> _Series:
    return [
        (_("Requests"), [row.requests for row in rows], "accent", "%{y}"),
        (_("Errors"), [row.failed for row in rows], "bad", "%{y}"),
    ]


def _tokens(rows: list[Usage]) -> _Series:
    return [
        (_("Prompt"), [row.prompt_tokens for row in rows], "accent", "%{y}"),
        (_("of it cached"), [row.cached_tokens for row in rows], "ok", "%{y}"),
        (_("Answer"), [row.completion_tokens for row in rows], "warn", "%{y}"),
    ]


def _latency(rows: list[Usage]) -> _Series:
    def at(q: float) -> list[float | None]:
        found = [row.latency_at(q) for row in rows]
        return [one.value if one is not None else None for one in found]

    return [
        ("P50", at(0.5), "accent", "%{y:.2f} s"),
        ("P95", at(0.95), "warn", "%{y:.2f} s"),
        ("P99", at(0.99), "bad", "%{y:.2f} s"),
    ]


_SERIES: dict[str, Callable[[list[Usage]], _Series]] = {
    "requests": _requests,
    "tokens": _tokens,
    "latency": _latency,
}


class UsageChart(PermissionView):
    """Chart data of one object; who may not see that learns that there is none."""

    permission: ClassVar[str] = "gateway.use"

    def scope(self, request: HttpRequest, pk: int) -> Scope:
        raise NotImplementedError

    def get(self, request: HttpRequest, pk: int, span: str, what: str) -> HttpResponse:
        scope = self.scope(request, pk)
        if span not in SPANS or what not in _SERIES:
            raise Http404
        revision = f"{type(self).__name__}/{pk}/{span}"
        response = JsonResponse(usage_figure(what, scope, SPANS[span], now=timezone.now(), revision=revision))
        response.headers["Cache-Control"] = "no-store"
        return response


class KeyChart(UsageChart):
    def scope(self, request: HttpRequest, pk: int) -> Scope:
        return Scope(key=get_object_or_404(Key.objects.visible_to(request.user), pk=pk).pk)


class TeamChart(UsageChart):
    def scope(self, request: HttpRequest, pk: int) -> Scope:
        return Scope(team=get_object_or_404(Team.objects.visible_to(request.user), pk=pk).pk)


class RouteChart(UsageChart):
    permission = "route.view"

    def scope(self, request: HttpRequest, pk: int) -> Scope:
        return Scope(route=get_object_or_404(Route.objects.visible_to(request.user), pk=pk).pk)


class TeamUsage(PermissionView):
    """Everything a team's keys consumed, by business, key or model."""

    permission: ClassVar[str] = "gateway.use"
    BY: ClassVar[dict[str, tuple[read.By, Any]]] = {
        "business": ("business_id", gettext_lazy("By business")),
        "key": ("key_id", gettext_lazy("By key")),
        "model": ("model", gettext_lazy("By model")),
    }

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        team = get_object_or_404(Team.objects.visible_to(request.user), pk=pk)
        by = request.GET.get("by", "business")
        by = by if by in self.BY else "business"
        context = {
            "team": team,
            "by": by,
            "bys": [(name, label) for name, (_column, label) in self.BY.items()],
            **usage_context(request, Scope(team=team.pk), f"/teams/{team.pk}/usage/", self.BY[by][0]),
        }
        return render(request, "routes/team_usage.html", context)


urlpatterns = [
    path("teams/<int:pk>/usage/", TeamUsage.as_view(), name="team_usage"),
    path("teams/<int:pk>/usage/<str:span>/<str:what>/", TeamChart.as_view(), name="team_chart"),
    path("keys/<int:pk>/usage/<str:span>/<str:what>/", KeyChart.as_view(), name="key_chart"),
    path("routes/<int:pk>/usage/<str:span>/<str:what>/", RouteChart.as_view(), name="route_chart"),
]
