"""Models: what one's keys may call, and how. For teams; it shows no host and no engine."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils.translation import gettext as _

from kvadmin.models import User
from kvadmin.views.base import PermissionView
from routes.errors import CURES
from routes.models import Key, Route
from routes.views.present import client_settings, gateway_address


def models_for(user: User) -> list[dict[str, Any]]:
    """Every route that a usable key of the user's own teams may call: {"route", "keys"}; for whoever sees
    routes, the others too.
    """
    keys = list(
        Key.objects.usable().filter(business__team__memberships__user=user).values_list("name", "models")
    )
    sees_all = user.may("route.view")
    found = []
    for route in Route.objects.with_targets():
        naming = list(dict.fromkeys(name for name, models in keys if models is None or route.name in models))
        if naming or sees_all:
            found.append({"route": route, "keys": naming})
    return found


class ModelList(PermissionView):
    permission: ClassVar[str] = "gateway.use"

    def get(self, request: HttpRequest) -> HttpResponse:
        context = {
            "models": models_for(request.user),
            "address": gateway_address(request),
            "has_keys": Key.objects.usable().filter(business__team__memberships__user=request.user).exists(),
            "in_team": request.user.memberships.exists(),
        }
        return render(request, "routes/model_list.html", context)


class ModelDetail(PermissionView):
    permission: ClassVar[str] = "gateway.use"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        model = next((model for model in models_for(request.user) if model["route"].pk == pk), None)
        if model is None:
            raise Http404
        route = model["route"]
        context = {
            **model,
            "address": gateway_address(request),
            "clients": client_settings(request, route.name),
            "cures": [
                {
                    "status": cure.status,
                    "code": cure.code,
                    "meaning": _(cure.meaning),
                    "remedy": _(cure.remedy),
                }
                for cure in CURES
            ],
        }
        return render(request, "routes/model_detail.html", context)


urlpatterns = [
    path("models/", ModelList.as_view(), name="model_list"),
    path("models/<int:pk>/", ModelDetail.as_view(), name="model_detail"),
]
