"""Sign-in by OpenID Connect: what is set, the callback address, a test; for administrators."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse

from kvadmin.accounts.oidc import Check, check_provider
from kvadmin.policies import Role
from kvadmin.views.base import PermissionView

PROVIDER_ID = "oidc"


def provider_settings() -> dict[str, Any] | None:
    """The configured provider without its secret; None if there is none."""
    apps = settings.SOCIALACCOUNT_PROVIDERS.get("openid_connect", {}).get("APPS", [])
    if not apps:
        return None
    return {
        "name": apps[0]["name"],
        "server_url": apps[0]["settings"]["server_url"],
        "client_id": apps[0]["client_id"],
        "has_secret": bool(apps[0]["secret"]),
    }


class OidcView(PermissionView):
    permission = "user.change"

    def page(self, request: HttpRequest, checks: list[Check]) -> HttpResponse:
        context = {
            "provider": provider_settings(),
            "checks": checks,
            "creates": settings.KVADMIN_OIDC_CREATE_USERS,
            "role": Role(settings.KVADMIN_OIDC_ROLE).label,
            "callback": request.build_absolute_uri(reverse("openid_connect_callback", args=[PROVIDER_ID])),
        }
        return render(request, "users/oidc.html", context)

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page(request, [])

    def post(self, request: HttpRequest) -> HttpResponse:
        provider = provider_settings()
        return self.page(request, check_provider(provider["server_url"]) if provider else [])


urlpatterns = [path("users/oidc/", OidcView.as_view(), name="oidc")]
