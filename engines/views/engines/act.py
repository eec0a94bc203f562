"""Starting, stopping, draining and restarting: one engine, or several at once."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views import View

from engines.actions.drain_engine import DrainEngine
from engines.actions.operate_engines import OperateEngines
from engines.actions.restart_engine import RestartEngine
from engines.actions.start_engine import StartEngine
from engines.actions.stop_engine import StopEngine
from engines.models import Engine
from kvadmin.actions import ActionError
from kvadmin.numbers import whole_number
from kvadmin.views.base import PermissionView, actor_of

VERBS = {"start": StartEngine, "stop": StopEngine, "drain": DrainEngine, "restart": RestartEngine}


def tell(request: HttpRequest, error: ActionError, *, subject: object = None) -> None:
    """Put a refusal and its remedy where the page shows messages, behind the name of what refused."""
    text = f"{error.message} {error.remedy}".strip()
    messages.error(request, f"{subject}: {text}" if subject else text)


class EngineVerbView(PermissionView, View):
    """POST only: one verb on one engine, then its page, where the operation shows."""

    permission = "engine.operate"
    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int, verb: str) -> HttpResponse:
        engine = get_object_or_404(Engine.objects.visible_to(request.user), pk=pk)
        if verb not in VERBS:
            raise Http404
        more: dict[str, Any] = {}
        if verb in {"start", "restart"}:
            more["override"] = request.POST.getlist("override")
        elif verb == "stop":
            more["at_once"] = "at_once" in request.POST
        try:
            VERBS[verb](actor=actor_of(request), engine=engine, **more).run()
        except ActionError as error:
            tell(request, error)
        return redirect("engines:engine_detail", pk=engine.pk)


class OperateEnginesView(PermissionView, View):
    """POST only: one verb on several engines; each refusal is told, the others go on."""

    permission = "engine.operate"
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        given = (whole_number(one) for one in request.POST.getlist("engine"))
        ids = [one for one in given if one is not None]
        verb = request.POST.get("verb", "")
        if not ids:
            messages.error(request, _("Choose at least one engine."))
            return redirect("engines:engine_list")
        try:
            outcomes = OperateEngines(actor=actor_of(request), engine_ids=ids, do=verb).run()
        except ActionError as error:
            tell(request, error)
            return redirect("engines:engine_list")
        begun = sum(outcome.operation is not None for outcome in outcomes)
        if begun:
            messages.success(
                request,
                ngettext("%(n)d operation begun.", "%(n)d operations begun.", begun) % {"n": begun},
            )
        for outcome in outcomes:
            if outcome.error is not None:
                tell(request, outcome.error, subject=outcome.engine)
        return redirect("engines:engine_list")
