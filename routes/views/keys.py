"""Keys: issued with the secret shown once, looked at, bounded, rotated, revoked."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_variables

from kvadmin.actions import Action, ActionError
from kvadmin.numbers import whole_number
from kvadmin.views.base import (
    PermissionView,
    actor_of,
    add_action_error,
    attempt,
    keyset_page,
    require,
    search_text,
)
from routes.actions.change_key import ChangeKey
from routes.actions.disable_key import DisableKey
from routes.actions.enable_key import EnableKey
from routes.actions.import_key import ImportKey
from routes.actions.issue_key import IssuedKey, IssueKey
from routes.actions.revoke_key import RevokeKey
from routes.actions.rotate_key import RotateKey
from routes.facts import warnings_of_key
from routes.models import Business, Key, Route
from routes.usage.read import Scope, month_to_date
from routes.views.key_forms import BoundsForm, ImportForm, IssueForm, OverlapForm, RotateForm, end_of_day
from routes.views.present import client_settings, gateway_address, shown
from routes.views.usage import usage_context

SHOWS = {
    "usable": gettext_lazy("In use"),
    "soon": gettext_lazy("Expiring soon"),
    "all": gettext_lazy("All"),
}


def keys_for(request: HttpRequest) -> QuerySet[Key]:
    return (
        Key.objects.visible_to(request.user)
        .select_related("business__team", "created_by", "predecessor")
        .prefetch_related("successors")
    )


class KeyList(PermissionView):
    permission: ClassVar[str] = "gateway.use"

    def get(self, request: HttpRequest) -> HttpResponse:
        text = search_text(request)
        view = request.GET.get("show", "usable")
        keys = keys_for(request)
        soon = keys.filter(pk__in=Key.objects.expiring_soon().values("pk"))
        if view == "soon":
            keys = soon
        elif view != "all":
            view = "usable"
            keys = keys.filter(pk__in=Key.objects.living().values("pk"))
        if text:
            keys = keys.filter(
                Q(name__icontains=text)
                | Q(business__name__icontains=text)
                | Q(business__team__name__icontains=text)
                | Q(public_id__startswith=text.removeprefix("sk-kv-").removesuffix("…")[:12])
            )
        context = {
            "page": keyset_page(keys, request.GET),
            "text": text,
            "show": view,
            "shows": SHOWS.items(),
            "soon": soon.count(),
            "owns": Business.objects.owned_by(request.user).exists(),
            "any": Key.objects.visible_to(request.user).exists(),
        }
        return render(request, "routes/key_list.html", context)


@sensitive_variables("issued")
def secret_page(request: HttpRequest, issued: IssuedKey) -> HttpResponse:
    """The secret, on the answer to the POST that made it and nowhere else."""
    key = issued.key
    names = list(Route.objects.filter(enabled=True).values_list("name", flat=True))
    callable_ = names if key.models is None else [name for name in key.models if name in names] or key.models
    model = callable_[0] if callable_ else "MODEL"
    context = {
        "key": key,
        "secret": issued.secret,
        "address": gateway_address(request),
        "clients": client_settings(request, model, issued.secret),
        "model": model,
        "notes": shown(warnings_of_key(key)),
    }
    response = render(request, "routes/key_secret.html", context)
    response["Cache-Control"] = "no-store"
    return response


class _NewKey(PermissionView):
    """A form for a key of one of one's own businesses."""

    permission: ClassVar[str] = "key.change"
    form: ClassVar[type[IssueForm]] = IssueForm
    template: ClassVar[str] = "routes/key_add.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        initial = {"business": whole_number(request.GET.get("business"))}
        if not initial["business"]:
            initial = {}
        return self.page(request, self.form(user=request.user, initial=initial))

    def page(self, request: HttpRequest, form: IssueForm) -> HttpResponse:
        context = {"form": form, "any": Business.objects.owned_by(request.user).exists()}
        response = render(request, self.template, context, status=400 if form.errors else 200)
        response["Cache-Control"] = "no-store"
        return response


class KeyAdd(_NewKey):
    @sensitive_variables("issued")
    def post(self, request: HttpRequest) -> HttpResponse:
        form = self.form(request.POST, user=request.user)
        if form.is_valid():
            action = IssueKey(actor_of(request), form.cleaned_data["business"], **form.bounds())
            try:
                issued = action.run()
            except ActionError as error:
                _on_form(form, error)
            else:
                return secret_page(request, issued)
        return self.page(request, form)


class KeyImport(_NewKey):
    form = ImportForm
    template = "routes/key_import.html"

    def post(self, request: HttpRequest) -> HttpResponse:
        form = self.form(request.POST, user=request.user)
        if form.is_valid():
            business, secret = form.cleaned_data["business"], form.cleaned_data["secret"]
            try:
                key = ImportKey(actor_of(request), business, secret=secret, **form.bounds()).run()
            except ActionError as error:
                _on_form(form, error)
            else:
                messages.success(request, _("The secret works here now. It is not stored, only its digest."))
                return redirect(key)
        return self.page(request, form)


def _on_form(form: BoundsForm, error: ActionError) -> None:
    """The action speaks of ``expires_at``; the form has a day."""
    errors = getattr(error, "errors", {})
    if "expires_at" in errors:
        errors["expires_on"] = errors.pop("expires_at")
    add_action_error(form, error)


class KeyView(PermissionView):
    """A page of one key; who may not see it learns that there is none."""

    permission: ClassVar[str] = "gateway.use"

    def key(self, request: HttpRequest, pk: int) -> Key:
        return get_object_or_404(keys_for(request), pk=pk)

    def page(
        self,
        request: HttpRequest,
        key: Key,
        rotate: RotateForm | None = None,
        overlap: OverlapForm | None = None,
    ) -> HttpResponse:
        context: dict[str, Any] = {
            "key": key,
            "owns": request.user.may("key.change", key),
            "notes": shown(warnings_of_key(key)),
            "rotate_form": rotate or RotateForm(),
            "overlap_form": overlap
            or OverlapForm(
                initial={"works_until": key.overlap_ends_at.date() if key.overlap_ends_at else None}
            ),
            "address": gateway_address(request),
            **usage_context(request, Scope(key=key.pk), f"/keys/{key.pk}/usage/"),
        }
        if key.monthly_tokens:
            month = month_to_date(Scope(key=key.pk), timezone.now())
            context |= {"month": month, "month_share": month.tokens / key.monthly_tokens}
        return render(request, "routes/key_detail.html", context, status=400 if rotate or overlap else 200)


class KeyDetail(KeyView):
    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self.page(request, self.key(request, pk))


class KeyEdit(KeyView):
    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        key = self._owned(request, pk)
        return self._form_page(request, key, BoundsForm(key=key))

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        key = self._owned(request, pk)
        form = BoundsForm(request.POST, key=key)
        if form.is_valid():
            try:
                ChangeKey(actor_of(request), key, form.bounds()).run()
            except ActionError as error:
                _on_form(form, error)
            else:
                messages.success(request, _("Saved. Every gateway knows it within a second."))
                return redirect(key)
        return self._form_page(request, key, form)

    def _owned(self, request: HttpRequest, pk: int) -> Key:
        key = self.key(request, pk)
        require(request, "key.change", key)
        return key

    def _form_page(self, request: HttpRequest, key: Key, form: BoundsForm) -> HttpResponse:
        context = {"key": key, "form": form}
        return render(request, "routes/key_edit.html", context, status=400 if form.errors else 200)


class KeyRotate(KeyView):
    @sensitive_variables("issued")
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        key = self.key(request, pk)
        form = RotateForm(request.POST)
        if not form.is_valid():
            return self.page(request, key, rotate=form)
        issued = attempt(request, RotateKey(actor_of(request), key, form.span))
        return redirect(key) if issued is None else secret_page(request, issued)


class KeyOverlap(KeyView):
    """Another end for a replaced key."""

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        key = self.key(request, pk)
        form = OverlapForm(request.POST)
        if not form.is_valid():
            return self.page(request, key, overlap=form)
        end = end_of_day(form.cleaned_data["works_until"])
        attempt(request, ChangeKey(actor_of(request), key, {"overlap_ends_at": end}), _("Saved."))
        return redirect(key)


class KeyActionView(KeyView):
    """A POST that runs one action on a key and goes back to the key's page."""

    done: Any = ""

    def action(self, request: HttpRequest, key: Key) -> Action[Key]:
        raise NotImplementedError

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        key = self.key(request, pk)
        attempt(request, self.action(request, key), str(self.done))
        return redirect(key)


class KeyDisable(KeyActionView):
    done = gettext_lazy("The key is disabled: callers get an error until it is enabled again.")

    def action(self, request: HttpRequest, key: Key) -> Action[Key]:
        return DisableKey(actor_of(request), key)


class KeyEnable(KeyActionView):
    done = gettext_lazy("The key works again.")

    def action(self, request: HttpRequest, key: Key) -> Action[Key]:
        return EnableKey(actor_of(request), key)


class KeyRevoke(KeyActionView):
    done = gettext_lazy("The key is revoked: every gateway refuses it within a second.")

    def action(self, request: HttpRequest, key: Key) -> Action[Key]:
        return RevokeKey(actor_of(request), key)


urlpatterns = [
    path("keys/", KeyList.as_view(), name="key_list"),
    path("keys/add/", KeyAdd.as_view(), name="key_add"),
    path("keys/import/", KeyImport.as_view(), name="key_import"),
    path("keys/<int:pk>/", KeyDetail.as_view(), name="key_detail"),
    path("keys/<int:pk>/edit/", KeyEdit.as_view(), name="key_edit"),
    path("keys/<int:pk>/rotate/", KeyRotate.as_view(), name="key_rotate"),
    path("keys/<int:pk>/overlap/", KeyOverlap.as_view(), name="key_overlap"),
    path("keys/<int:pk>/disable/", KeyDisable.as_view(), name="key_disable"),
    path("keys/<int:pk>/enable/", KeyEnable.as_view(), name="key_enable"),
    path("keys/<int:pk>/revoke/", KeyRevoke.as_view(), name="key_revoke"),
]
