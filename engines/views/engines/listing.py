"""The list of engines, with a choice of several to start, stop, drain or restart."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views import View

from engines.choices import EngineState
from engines.models import Engine
from engines.views.fleet import Filter, make_cards
from kvadmin.views.base import PermissionView


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
