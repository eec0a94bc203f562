"""The list of engines, with a choice of several to start, stop, drain or restart."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views import View

from engines.choices import EngineState
from engines.models import Engine
from engines.planning import comparable_starts, compare
from engines.views.fleet import Filter, make_cards
from kvadmin.numbers import whole_number
from kvadmin.views.base import PermissionView

#: starts on one page; each is reckoned again
_PAGE = 20


class StartList(PermissionView, View):
    """What was expected of each start beside what it found, newest first; ``?before=<id>`` goes on."""

    permission = "engine.view"

    def get(self, request: HttpRequest) -> HttpResponse:
        starts = comparable_starts(Engine.objects.visible_to(request.user))
        before = whole_number(request.GET.get("before"))
        if before is not None:
            starts = starts.filter(pk__lt=before)
        rows = list(starts.order_by("-pk")[: _PAGE + 1])
        context = {
            "rows": compare(rows[:_PAGE]),
            "before": rows[_PAGE - 1].pk if len(rows) > _PAGE else None,
        }
        return render(request, "engines/start_list.html", context)


class EngineListView(PermissionView, View):
    permission = "engine.view"

    def get(self, request: HttpRequest) -> HttpResponse:
        filter_ = Filter.of(request)
        engines = Engine.objects.visible_to(request.user).select_related(
            "host", "revision__profile", "current_start"
        )
        return render(
            request,
            "engines/engine_list.html",
            {
                "cards": make_cards(filter_.apply(engines)),
                "any": engines.exists(),
                "filter": filter_,
                "states": EngineState.choices,
            },
        )
