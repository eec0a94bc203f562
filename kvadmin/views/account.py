"""The account page: one's own name, language, theme, and the ways to sign in."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path

from kvadmin.views.base import PermissionView


class AccountView(PermissionView):
    permission = "account.own"

    def get(self, request: HttpRequest) -> HttpResponse:
        return render(request, "account/profile.html")


urlpatterns = [
    path("account/", AccountView.as_view(), name="account"),
]
