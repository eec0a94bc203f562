"""Routes: which model names there are, what serves them, what does not fit together."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from kvadmin.actions import ActionError
from kvadmin.crypto import has_secret
from kvadmin.views.base import PermissionView, actor_of, add_action_error, attempt, keyset_page, search_text
from routes import naming
from routes.actions.export_routes import ExportRoutes
from routes.actions.import_routes import ImportedRoutes, ImportRoutes
from routes.actions.remove_route import RemoveRoute
from routes.actions.save_route import SaveRoute
from routes.facts import warnings_of_route
from routes.models import Key, Route
from routes.usage.read import Scope
from routes.views.present import shown
from routes.views.route_forms import BaseTargets, ImportForm, RouteForm, target_forms
from routes.views.usage import usage_context


class RouteList(PermissionView):
    permission: ClassVar[str] = "route.view"

    def get(self, request: HttpRequest) -> HttpResponse:
        text = search_text(request)
        routes = Route.objects.visible_to(request.user).with_targets()
        if text:
            routes = routes.filter(
                Q(name__icontains=text)
                | Q(aliases__icontains=text)
                | Q(description__icontains=text)
                | Q(targets__engine__name__icontains=text)
                | Q(targets__base_url__icontains=text)
            ).distinct()
        page = keyset_page(routes, request.GET, by="name")
        rows = [
            {
                "route": route,
                "warnings": sum(note.severity == "warning" for note in warnings_of_route(route)),
                "targets": route.targets.all(),
            }
            for route in page.rows
        ]
        return render(request, "routes/route_list.html", {"page": page, "rows": rows, "text": text})


class RouteDetail(PermissionView):
    permission: ClassVar[str] = "route.view"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        route = get_object_or_404(Route.objects.visible_to(request.user).with_targets(), pk=pk)
        named = Key.objects.usable().filter(models__contains=[route.name])
        context = {
            "route": route,
            "notes": shown(warnings_of_route(route)),
            "hints": shown(naming.hints(route.name)),
            "targets": [
                {"target": target, "has_key": has_secret(target, "api_key")} for target in route.targets.all()
            ],
            "taken_over": route.taken_over.all(),
            "named_by": named.count(),
            "open_keys": Key.objects.usable().filter(models=None).count(),
            "playbook": json.dumps(
                ExportRoutes(actor_of(request), [route]).run(), indent=2, ensure_ascii=False
            ),
            # which keys called it is for those who see all teams
            "by": "key" if request.user.may("team.view_all") else "model",
        }
        context |= usage_context(
            request,
            Scope(route=route.pk),
            f"/routes/{route.pk}/usage/",
            "key_id" if context["by"] == "key" else "model",
        )
        return render(request, "routes/route_detail.html", context)


class _RouteForm(PermissionView):
    permission: ClassVar[str] = "route.change"

    def page(
        self,
        request: HttpRequest,
        route: Route | None,
        form: RouteForm,
        targets: BaseTargets,
        *,
        refused: bool,
    ) -> HttpResponse:
        context = {"route": route, "form": form, "targets": targets}
        return render(request, "routes/route_form.html", context, status=400 if refused else 200)

    def save(self, request: HttpRequest, route: Route | None) -> HttpResponse:
        form = RouteForm(request.POST, route=route)
        targets = target_forms(route, request.POST)
        if not (form.is_valid() & targets.is_valid()):
            return self.page(request, route, form, targets, refused=True)
        action = SaveRoute(actor_of(request), route, form.values(), targets.targets())
        try:
            saved = action.run()
        except ActionError as error:
            _place_errors(form, targets, error)
            return self.page(request, route, form, targets, refused=True)
        messages.success(request, _("Saved. Every gateway knows it within a second."))
        return redirect(saved)


def _place_errors(form: RouteForm, targets: BaseTargets, error: ActionError) -> None:
    """``targets.0.base_url`` goes to that target's field, the rest to the route's form."""
    filled = targets.filled()
    errors = dict(getattr(error, "errors", {}))
    for name in [name for name in errors if name.startswith("targets.")]:
        _word, place, *field = name.split(".")
        for sentence in errors.pop(name):
            filled[int(place)].add_error(field[0] if field else None, sentence)
    if "price" in errors:
        errors["currency"] = errors.pop("price")
    if errors or not getattr(error, "errors", {}):
        error.errors = errors
        add_action_error(form, error)


class RouteAdd(_RouteForm):
    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page(request, None, RouteForm(), target_forms(None), refused=False)

    def post(self, request: HttpRequest) -> HttpResponse:
        return self.save(request, None)


class RouteEdit(_RouteForm):
    def _route(self, request: HttpRequest, pk: int) -> Route:
        return get_object_or_404(Route.objects.visible_to(request.user), pk=pk)

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        route = self._route(request, pk)
        return self.page(request, route, RouteForm(route=route), target_forms(route), refused=False)

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self.save(request, self._route(request, pk))


class RouteSwitch(PermissionView):
    """On or off, from the route's page."""

    permission: ClassVar[str] = "route.change"
    enabled: ClassVar[bool] = True
    done: ClassVar[Any] = gettext_lazy("The route is on.")

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        route = get_object_or_404(Route.objects.visible_to(request.user), pk=pk)
        attempt(request, SaveRoute(actor_of(request), route, {"enabled": self.enabled}), str(self.done))
        return redirect(route)


class RouteOff(RouteSwitch):
    enabled = False
    done = gettext_lazy("The route is off: callers get an error.")


class RouteRemove(PermissionView):
    permission: ClassVar[str] = "route.change"

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        route = get_object_or_404(Route.objects.visible_to(request.user), pk=pk)
        attempt(
            request, RemoveRoute(actor_of(request), route), _("%(name)s is removed.") % {"name": route.name}
        )
        return redirect("routes:route_list")


class RouteImport(PermissionView):
    permission: ClassVar[str] = "route.change"

    def get(self, request: HttpRequest) -> HttpResponse:
        return render(request, "routes/route_import.html", {"form": ImportForm()})

    def post(self, request: HttpRequest) -> HttpResponse:
        form = ImportForm(request.POST)
        if form.is_valid():
            action = ImportRoutes(actor_of(request), form.cleaned_data["text"], form.cleaned_data["replace"])
            try:
                done = action.run()
            except ActionError as error:
                add_action_error(form, error)
            else:
                _tell(request, done)
                return redirect("routes:route_list")
        return render(request, "routes/route_import.html", {"form": form}, status=400)


def _tell(request: HttpRequest, done: ImportedRoutes) -> None:
    counts = [
        ngettext("%(n)d route made", "%(n)d routes made", len(done.created)) % {"n": len(done.created)},
        ngettext("%(n)d changed", "%(n)d changed", len(done.changed)) % {"n": len(done.changed)},
        ngettext("%(n)d as before", "%(n)d as before", len(done.unchanged)) % {"n": len(done.unchanged)},
    ]
    messages.success(request, ", ".join(counts) + ".")
    for note in done.notes[:5]:
        messages.info(request, note.text(_))


class RouteExport(PermissionView):
    """The playbook's JSON of one route, or of all, to save."""

    permission: ClassVar[str] = "route.view"

    def get(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        routes: QuerySet[Route] = Route.objects.visible_to(request.user).with_targets()
        name = "routes"
        if pk is not None:
            route = get_object_or_404(routes, pk=pk)
            routes, name = routes.filter(pk=pk), route.name.replace("/", "-")
        text = json.dumps(ExportRoutes(actor_of(request), routes).run(), indent=2, ensure_ascii=False)
        response = HttpResponse(f"{text}\n", content_type="application/json")
        response.headers["Content-Disposition"] = content_disposition_header(True, f"{name}.json")
        return response


urlpatterns = [
    path("routes/", RouteList.as_view(), name="route_list"),
    path("routes/add/", RouteAdd.as_view(), name="route_add"),
    path("routes/import/", RouteImport.as_view(), name="route_import"),
    path("routes/export/", RouteExport.as_view(), name="route_export_all"),
    path("routes/<int:pk>/", RouteDetail.as_view(), name="route_detail"),
    path("routes/<int:pk>/edit/", RouteEdit.as_view(), name="route_edit"),
    path("routes/<int:pk>/on/", RouteSwitch.as_view(), name="route_on"),
    path("routes/<int:pk>/off/", RouteOff.as_view(), name="route_off"),
    path("routes/<int:pk>/remove/", RouteRemove.as_view(), name="route_remove"),
    path("routes/<int:pk>/export/", RouteExport.as_view(), name="route_export"),
]
