"""What pages share: the permission check, the actor, an action's refusal on a form, keyset pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from django import forms
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views import View

from kvadmin import policies
from kvadmin.actions import Action, ActionError, Actor
from kvadmin.clientip import client_ip

T = TypeVar("T")
M = TypeVar("M", bound=models.Model)


def actor_of(request: HttpRequest) -> Actor:
    """The signed-in person as an action's actor, with the address they came from."""
    return Actor(user=request.user, source="web", ip=client_ip(request))


def to_sign_in(request: HttpRequest) -> HttpResponseBase:
    """To the sign-in page and back. A fragment's request makes the whole page go there."""
    if getattr(request, "htmx", False):
        back = request.htmx.current_url_abs_path or "/"
        response = HttpResponse()
        response["HX-Redirect"] = redirect_to_login(back).url
        return response
    return redirect_to_login(request.get_full_path() if request.method == "GET" else "/")


def require(request: HttpRequest, permission: str, subject: models.Model | None = None) -> None:
    """Raise PermissionDenied (the 403 page, with the role that would do) unless the person may."""
    if not policies.allows(request.user, permission, subject):
        raise PermissionDenied(permission)


class PermissionView(View):
    """A page behind ``permission``: anonymous people sign in first, others get the 403 page."""

    permission: ClassVar[str]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return to_sign_in(request)
        require(request, self.permission)
        return super().dispatch(request, *args, **kwargs)


def permission_denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """The 403 page: which role would do."""
    permission = str(exception) if exception is not None else ""
    context = {"sentence": "", "remedy": ""}
    if permission in policies.PERMISSIONS and request.user.is_authenticated:
        if permission in policies.TEAM_PERMISSIONS:
            context = {
                "sentence": _("You are not an owner of this team."),
                "remedy": policies.whom_to_ask(permission),
            }
        else:
            context = {
                "sentence": _("Your role is %(role)s; this page needs %(needed)s.")
                % {
                    "role": request.user.get_role_display(),
                    "needed": policies.role_needed(permission).label,
                },
                "remedy": _("Ask an administrator if you need it."),
            }
    return render(request, "403.html", context, status=403)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return render(request, "403_csrf.html", status=403)


def too_many_requests(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return render(request, "429.html", status=429)


def safe_next(request: HttpRequest, fallback: str = "/") -> str:
    """The ``next`` parameter if it stays on this site, else the fallback (a path or a URL name)."""
    target = request.POST.get("next") or request.GET.get("next") or ""
    if url_has_allowed_host_and_scheme(target, {request.get_host()}, require_https=request.is_secure()):
        return target
    return resolve_url(fallback)


def sentence_of(error: ActionError) -> str:
    return f"{error.message} {error.remedy}".strip()


def add_action_error(form: forms.BaseForm, error: ActionError) -> None:
    """Put an action's refusal on the form: on its fields where it names them, else above all."""
    errors: dict[str, list[str]] = getattr(error, "errors", {}) or {}
    for name, sentences in errors.items():
        for sentence in sentences:
            form.add_error(name if name in form.fields else None, sentence)
    if not errors:
        form.add_error(error.field if error.field in form.fields else None, sentence_of(error))


def attempt(request: HttpRequest, action: Action[T], done: str | Callable[[T], str] = "") -> T | None:
    """Run an action; the outcome, or the refusal with its remedy, becomes a message. None if refused."""
    try:
        result = action.run()
    except ActionError as error:
        messages.error(request, sentence_of(error))
        return None
    text = done(result) if callable(done) else done
    if text:
        messages.success(request, text)
    return result


def search_text(request: HttpRequest, name: str = "q") -> str:
    """What is looked for, without NUL, which PostgreSQL and commands cannot hold."""
    return request.GET.get(name, "").replace("\0", "").strip()


@dataclass(frozen=True)
class KeysetPage(Generic[M]):
    """Rows, and the query strings of the neighbouring pages (empty where there is none)."""

    rows: list[M]
    newer: str = ""
    older: str = ""


def keyset_page(
    queryset: models.QuerySet[M], params: QueryDict, *, by: str = "-id", size: int = 50
) -> KeysetPage[M]:
    """One page by a unique column (``-id``, ``name``): a page deep down costs what the first costs.

    ``after`` and ``before`` in ``params`` hold the neighbour's value; one that cannot be read
    counts as absent.
    """
    field = by.lstrip("-")
    column = queryset.model._meta.get_field(field)
    downward = by.startswith("-")

    def value(name: str) -> Any:
        text = params.get(name, "")
        try:
            return column.to_python(text) if text and "\0" not in text else None
        except ValidationError:
            return None

    after, before = value("after"), value("before")
    backward = after is None and before is not None
    rows = queryset.order_by(by)
    if after is not None:
        rows = rows.filter(**{f"{field}__{'lt' if downward else 'gt'}": after})
    elif backward:
        rows = rows.filter(**{f"{field}__{'gt' if downward else 'lt'}": before}).reverse()
    found = list(rows[: size + 1])
    more, found = len(found) > size, found[:size]
    if backward:
        found.reverse()

    def link(name: str, row: M) -> str:
        query = params.copy()
        query.pop("after", None)
        query.pop("before", None)
        query[name] = str(getattr(row, field))
        return query.urlencode()

    has_newer = bool(found) and (more if backward else after is not None)
    has_older = bool(found) and (backward or more)
    return KeysetPage(
        found,
        newer=link("before", found[0]) if has_newer else "",
        older=link("after", found[-1]) if has_older else "",
    )
