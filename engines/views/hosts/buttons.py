"""What the buttons of a host's page do: each runs one action and goes back to the page."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _

from engines.actions.confirm_host_key import ConfirmHostKey
from engines.actions.contact_host import ContactHost
from engines.actions.discover_engines import DiscoverEngines
from engines.actions.probe_host import ProbeHost
from engines.actions.remove_host import RemoveHost
from engines.models import Host
from kvadmin.views.base import PermissionView, actor_of, attempt


class HostButton(PermissionView):
    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        host = get_object_or_404(Host.objects.visible_to(request.user), pk=pk)
        return self.act(request, host) or redirect(host)

    def act(self, request: HttpRequest, host: Host) -> HttpResponse | None:
        raise NotImplementedError


class TestConnection(HostButton):
    permission = "host.operate"
    __test__ = False

    def act(self, request: HttpRequest, host: Host) -> None:
        action = ContactHost(actor_of(request), host=host)
        if attempt(request, action) is not None:
            level = messages.SUCCESS if action.connected else messages.WARNING
            messages.add_message(request, level, action.sentence)


class ConfirmKey(HostButton):
    permission = "host.change"

    def act(self, request: HttpRequest, host: Host) -> None:
        action = ConfirmHostKey(
            actor_of(request),
            host=host,
            fingerprint=request.POST.get("fingerprint", ""),
            replace=bool(request.POST.get("replace")),
        )
        attempt(request, action, _("The key is confirmed. The host is probed now."))


class Probe(HostButton):
    permission = "host.operate"

    def act(self, request: HttpRequest, host: Host) -> None:
        attempt(request, ProbeHost(actor_of(request), host=host), _("The probe has begun."))


class Discover(HostButton):
    permission = "host.operate"

    def act(self, request: HttpRequest, host: Host) -> None:
        attempt(
            request,
            DiscoverEngines(actor_of(request), host=host),
            _("Looking for running vLLM servers. What is found is listed below."),
        )


class Remove(HostButton):
    permission = "host.change"

    def act(self, request: HttpRequest, host: Host) -> HttpResponse | None:
        name, key = host.name, host.pk
        attempt(
            request,
            RemoveHost(actor_of(request), host=host),
            _("The host %(name)s was removed. Nothing on it was touched.") % {"name": name},
        )
        return None if Host.objects.filter(pk=key).exists() else redirect("engines:host_list")
