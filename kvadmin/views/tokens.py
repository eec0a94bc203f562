"""Pages: one's own management tokens."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kvadmin.actions import ActionError
from kvadmin.actions.issue_token import IssuedToken, IssueToken
from kvadmin.actions.revoke_token import RevokeToken
from kvadmin.models import ManagementToken
from kvadmin.models.token import TokenScope
from kvadmin.views.base import PermissionView, actor_of, add_action_error, attempt, keyset_page

_LIFETIMES = [
    ("7", gettext_lazy("7 days")),
    ("30", gettext_lazy("30 days")),
    ("90", gettext_lazy("90 days")),
    ("365", gettext_lazy("1 year")),
    ("", gettext_lazy("never")),
]


class TokenForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("What will use it, such as “nightly script”."),
    )
    scope = forms.ChoiceField(
        label=gettext_lazy("It may"), choices=TokenScope.choices, initial=TokenScope.READ
    )
    days = forms.TypedChoiceField(
        label=gettext_lazy("Expires after"),
        choices=_LIFETIMES,
        initial="90",
        required=False,
        coerce=int,
        empty_value=None,
    )


class TokenList(PermissionView):
    """List one's tokens; make one, which shows its secret in the answer and nowhere else."""

    permission: ClassVar[str] = "token.own"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._page(request, TokenForm())

    def post(self, request: HttpRequest) -> HttpResponse:
        form = TokenForm(request.POST)
        issued = self._issue(request, form) if form.is_valid() else None
        return self._page(request, form if issued is None else TokenForm(), issued)

    def _issue(self, request: HttpRequest, form: TokenForm) -> IssuedToken | None:
        days = form.cleaned_data["days"]
        try:
            return IssueToken(
                actor_of(request),
                user=request.user,
                name=form.cleaned_data["name"],
                scope=form.cleaned_data["scope"],
                expires_at=timezone.now() + timedelta(days=days) if days else None,
            ).run()
        except ActionError as error:
            add_action_error(form, error)
            return None

    def _page(self, request: HttpRequest, form: TokenForm, issued: IssuedToken | None = None) -> HttpResponse:
        tokens = ManagementToken.objects.filter(user=request.user)
        context: dict[str, Any] = {
            "form": form,
            "page": keyset_page(tokens, request.GET, size=50),
            "issued": issued,
            "address": request.build_absolute_uri("/api/manage/v1/system/version"),
        }
        status = 400 if form.errors else 200
        response = render(request, "account/tokens.html", context, status=status)
        response["Cache-Control"] = "no-store"
        return response


class TokenRevoke(PermissionView):
    permission: ClassVar[str] = "token.own"

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        token = get_object_or_404(ManagementToken, pk=pk, user=request.user)
        attempt(
            request,
            RevokeToken(actor_of(request), token=token),
            lambda revoked: _("“%(name)s” is revoked and works no more.") % {"name": revoked.name},
        )
        return redirect("kvadmin:token_list")


urlpatterns = [
    path("account/tokens/", TokenList.as_view(), name="token_list"),
    path("account/tokens/<int:pk>/revoke/", TokenRevoke.as_view(), name="token_revoke"),
]
