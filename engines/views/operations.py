"""Pages: operations, in steps, while they run and after."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils.translation import gettext as _
from django.views import View

from engines.actions.cancel_operation import CancelOperation
from engines.choices import OperationKind, OperationState
from engines.models import Operation
from kvadmin.actions import ActionError
from kvadmin.numbers import whole_number
from kvadmin.views.base import PermissionView, actor_of

PAGE = 50


class OperationListView(PermissionView, View):
    permission = "operation.view"

    def get(self, request: HttpRequest) -> HttpResponse:
        operations = Operation.objects.visible_to(request.user).select_related(
            "host", "engine", "requested_by"
        )
        state, kind = request.GET.get("state", ""), request.GET.get("kind", "")
        before = whole_number(request.GET.get("before"))
        if state in OperationState.values:
            operations = operations.filter(state=state)
        if kind in OperationKind.values:
            operations = operations.filter(kind=kind)
        if before is not None:
            operations = operations.filter(pk__lt=before)
        rows = list(operations[: PAGE + 1])
        context = {
            "operations": rows[:PAGE],
            "next": rows[PAGE - 1].pk if len(rows) > PAGE else None,
            "state": state,
            "kind": kind,
            "states": OperationState.choices,
            "kinds": OperationKind.choices,
        }
        return render(request, "engines/operation_list.html", context)


def operation_context(request: HttpRequest, uuid: UUID) -> dict[str, Any]:
    operation = get_object_or_404(
        Operation.objects.visible_to(request.user)
        .select_related("host", "engine", "requested_by")
        .prefetch_related("steps"),
        uuid=uuid,
    )
    lines = list(operation.lines.order_by("-id")[:400])
    text = f"{operation.state}:{operation.progress}:{operation.progress_text}:{lines[0].pk if lines else 0}"
    text += ",".join(f"{step.state}{step.detail}" for step in operation.steps.all())
    return {
        "operation": operation,
        "lines": lines[::-1],
        "mark": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


class OperationDetailView(PermissionView, View):
    permission = "operation.view"

    def get(self, request: HttpRequest, uuid: UUID) -> HttpResponse:
        return render(request, "engines/operation_detail.html", operation_context(request, uuid))


class OperationStateView(PermissionView, View):
    """The live part of an operation's page: 204 while nothing changed."""

    permission = "operation.view"

    def get(self, request: HttpRequest, uuid: UUID) -> HttpResponse:
        context = operation_context(request, uuid)
        if request.GET.get("mark") == context["mark"]:
            return HttpResponse(status=204)
        return render(request, "engines/_operation_state.html", context)


class OperationCancelView(PermissionView, View):
    permission = "operation.cancel"
    http_method_names = ["post"]

    def post(self, request: HttpRequest, uuid: UUID) -> HttpResponse:
        operation = get_object_or_404(Operation.objects.visible_to(request.user), uuid=uuid)
        try:
            CancelOperation(actor=actor_of(request), operation=operation).run()
        except ActionError as error:
            messages.error(request, f"{error.message} {error.remedy}".strip())
        else:
            messages.success(request, _("It stops at the end of the present step."))
        return redirect("engines:operation_detail", uuid=uuid)


urlpatterns = [
    path("operations/", OperationListView.as_view(), name="operation_list"),
    path("operations/<uuid:uuid>/", OperationDetailView.as_view(), name="operation_detail"),
    path("operations/<uuid:uuid>/state", OperationStateView.as_view(), name="operation_state"),
    path("operations/<uuid:uuid>/cancel", OperationCancelView.as_view(), name="operation_cancel"),
]
