"""Adopting a discovered server as an engine."""

from __future__ import annotations

import re
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from engines.actions.adopt_engine import AdoptEngine, discovered
from engines.models import Engine, Host
from engines.views.hosts.forms import AdoptForm
from kvadmin.actions import ActionError
from kvadmin.views.base import PermissionView, actor_of, add_action_error, sentence_of


class AdoptView(PermissionView):
    permission = "engine.change"

    def get(self, request: HttpRequest, pk: int, pid: int) -> HttpResponse:
        return self._page(request, pk, pid, None)

    def post(self, request: HttpRequest, pk: int, pid: int) -> HttpResponse:
        host = get_object_or_404(Host.objects.visible_to(request.user), pk=pk)
        form = AdoptForm(request.POST)
        if form.is_valid():
            try:
                engine = AdoptEngine(actor_of(request), host=host, pid=pid, **form.cleaned_data).run()
            except ActionError as error:
                add_action_error(form, error)
            else:
                messages.success(
                    request, _("%(name)s was adopted; it was not restarted.") % {"name": engine.name}
                )
                return redirect(engine)
        return self._page(request, pk, pid, form)

    def _page(self, request: HttpRequest, pk: int, pid: int, form: AdoptForm | None) -> HttpResponse:
        host = get_object_or_404(Host.objects.visible_to(request.user), pk=pk)
        try:
            _operation, server = discovered(host, pid)
        except ActionError as error:
            messages.error(request, sentence_of(error))
            return redirect(host)
        form = form or AdoptForm(initial={"name": _free_name(server)})
        return render(request, "engines/hosts/adopt.html", {"host": host, "server": server, "form": form})


def _free_name(server: dict[str, Any]) -> str:
    names = server.get("answers", {}).get("served_names") or server["served_names"] or ["engine"]
    wanted = re.sub(r"[^A-Za-z0-9._-]+", "-", names[0].rstrip("/").rsplit("/", 1)[-1]).strip("-")[:90]
    wanted = wanted or "engine"
    taken = set(Engine.objects.filter(name__startswith=wanted).values_list("name", flat=True))
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name
