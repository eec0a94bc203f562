"""Search: a page of its own, and the palette's list."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path

from kvadmin.search import find
from kvadmin.views.base import PermissionView, search_text


class SearchView(PermissionView):
    """``?q=``; a module's request gets the list alone."""

    permission = "account.own"

    def get(self, request: HttpRequest) -> HttpResponse:
        text = search_text(request)
        context = {"text": text, "groups": find(request.user, text)}
        if request.headers.get("X-Requested-With") == "fetch":
            return render(request, "search/hits.html", context)
        return render(request, "search/page.html", context)


urlpatterns = [path("search/", SearchView.as_view(), name="search")]
