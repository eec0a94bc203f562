"""One engine: what it does now, its operations, its starts."""

from __future__ import annotations

import hashlib
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext as _
from django.views import View

from engines.actions.engine_states import has_callers
from engines.choices import EngineState
from engines.flag_lists import release_for
from engines.models import Engine, Operation
from engines.planning import compare
from engines.views.fleet import make_cards
from engines.vllm.command import display_command
from kvadmin.sentences import unpack
from kvadmin.views.base import PermissionView

#: starts whose figures are reckoned again for one page
_COMPARED = 10

#: states from which each verb makes sense; the action itself has the last word
OFFERED: dict[str, tuple[EngineState, ...]] = {
    "start": (EngineState.STOPPED, EngineState.FAILED),
    "drain": (EngineState.READY,),
    "restart": (EngineState.READY, EngineState.FAILED),
    "stop": (
        EngineState.STARTING,
        EngineState.LOADING,
        EngineState.READY,
        EngineState.DRAINING,
        EngineState.UNREACHABLE,
    ),
}


def tabs(engine: Engine) -> list[tuple[str, str]]:
    return [
        ("engine_detail", _("Now")),
        ("engine_log", _("Log")),
        ("engine_operations", _("Operations")),
        ("engine_starts", _("Starts")),
    ]


def offered(engine: Engine) -> list[str]:
    """The verbs that make sense now. A failed engine of which something may be left can be stopped."""
    verbs = [verb for verb, states in OFFERED.items() if engine.observed in states]
    if engine.observed == EngineState.FAILED and engine.starts.filter(ended_at=None).exists():
        verbs.append("stop")
    return verbs


def waivable(operation: Operation | None) -> list[dict[str, Any]]:
    """The failed checks of a start that an operator may override; none if one of them is not safe to."""
    checks = operation.scratch.get("checks", []) if operation is not None else []
    missed = [in_words(check) for check in checks if not check["ok"]]
    return missed if all(check["safe"] for check in missed) else []


def engine_context(request: HttpRequest, pk: int) -> dict[str, Any]:
    """What every page of an engine needs; 404 when it is not this person's to see."""
    engine = get_object_or_404(
        Engine.objects.visible_to(request.user).select_related(
            "host", "revision__profile", "environment", "current_start"
        ),
        pk=pk,
    )
    card = make_cards([engine])[0]
    last = (
        engine.operations.select_related("requested_by", "host", "engine").prefetch_related("steps").first()
    )
    failed = last if last is not None and last.state == "failed" else None
    return {
        "engine": engine,
        "card": card,
        "operation": last if last is not None and last.is_active else None,
        "failed_operation": failed,
        "override": waivable(failed),
        "offered": offered(engine),
        "callers": has_callers(engine),
        "tabs": tabs(engine),
        "tab": request.resolver_match.url_name if request.resolver_match else "",
        "findings": findings(engine),
    }


def findings(engine: Engine) -> list[dict[str, Any]]:
    """What its present start found, in words."""
    kept = engine.current_start.facts.get("findings", []) if engine.current_start else []
    return [in_words(one) for one in kept]


def in_words(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored check or finding with its sentences in the reader's language."""
    return {**stored, "text": unpack(stored["text"]), "remedy": unpack(stored["remedy"])}


def mark_of(context: dict[str, Any]) -> str:
    """Changes whenever the state part of the page would look different."""
    engine, operation = context["engine"], context["operation"]
    text = f"{engine.seq}:{engine.observed}:{engine.answered_at}:{operation and operation.pk}"
    text += f":{context['callers']}"
    if operation is not None:
        text += f":{operation.progress}:{operation.progress_text}" + ",".join(
            f"{step.state}{step.detail}" for step in operation.steps.all()
        )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class EngineDetailView(PermissionView, View):
    permission = "engine.view"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        context = engine_context(request, pk)
        engine = context["engine"]
        context["mark"] = mark_of(context)
        if engine.revision is not None:
            context["command"] = display_command(
                engine.revision.shown_spec,
                executable=engine.environment.executable if engine.environment else "vllm",
                bind_address=engine.bind_address,
                port=engine.port,
                release=release_for(engine.environment.version) if engine.environment else None,
            )
        elif engine.current_start is not None:
            context["command"] = " ".join(engine.current_start.command)
        if engine.current_start is not None and engine.current_start.facts.get("kv_tokens"):
            start = engine.current_start
            start.engine = engine
            context["compared"] = compare([start])[0]
        return render(request, "engines/engine_detail.html", context)


class EngineStateView(PermissionView, View):
    """The live part of the engine's page: 204 while nothing changed."""

    permission = "engine.view"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        context = engine_context(request, pk)
        context["mark"] = mark_of(context)
        if request.GET.get("mark") == context["mark"]:
            return HttpResponse(status=204)
        return render(request, "engines/_engine_state.html", context)


class EngineOperationsView(PermissionView, View):
    permission = "engine.view"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        context = engine_context(request, pk)
        context["operations"] = Operation.objects.filter(engine=context["engine"]).select_related(
            "requested_by", "host", "engine"
        )[:100]
        return render(request, "engines/engine_operations.html", context)


class EngineStartsView(PermissionView, View):
    permission = "engine.view"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        context = engine_context(request, pk)
        engine = context["engine"]
        starts = engine.starts.select_related("revision__profile", "created_by", "engine__host")[:50]
        # reckoning takes some milliseconds for each, so only the latest are compared
        compared = compare(starts[:_COMPARED])
        context["starts"] = starts
        context["compared"] = [one for one in compared if one.found_tokens]
        context["transitions"] = engine.transitions.select_related("start", "operation")[:100]
        return render(request, "engines/engine_starts.html", context)
