"""The list of hosts and a host's page."""

from __future__ import annotations

import hashlib
from typing import Any

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext as _

from engines.choices import HostState, OperationKind, OperationState
from engines.models import Host, Operation
from engines.ssh import keys
from engines.views.hosts.chart import gpu_memory_chart
from engines.views.hosts.facts import gpu_summary, gpus_of
from kvadmin.crypto import is_readable
from kvadmin.views.base import PermissionView, keyset_page, search_text


class ListView(PermissionView):
    permission = "host.view"

    def get(self, request: HttpRequest) -> HttpResponse:
        state, text = request.GET.get("state", ""), search_text(request)
        visible = Host.objects.visible_to(request.user)
        hosts = visible.prefetch_related("environments").annotate(engine_count=Count("engines"))
        if state == "trouble":
            hosts = hosts.exclude(state=HostState.ONLINE)
        elif state == "online":
            hosts = hosts.filter(state=HostState.ONLINE)
        if text:
            hosts = hosts.filter(
                Q(name__icontains=text)
                | Q(address__icontains=text)
                | Q(facts__gpus__icontains=text)
                | Q(environments__version__startswith=text)
            ).distinct()
        page = keyset_page(hosts, request.GET, by="name")
        total = visible.count()
        context = {
            "page": page,
            "rows": [
                {
                    "host": host,
                    "gpu": gpu_summary(host.facts),
                    "versions": list(dict.fromkeys(one.version for one in host.environments.all())),
                }
                for host in page.rows
            ],
            "state": state,
            "q": text,
            "total": total,
            "trouble": visible.exclude(state=HostState.ONLINE).count() if total else 0,
        }
        return render(request, "engines/hosts/list.html", context)


def change_mark(host: Host) -> str:
    """Another text whenever something on the host's page changed that is more than progress."""
    active = host.operations.active().order_by("pk").values_list("pk", flat=True)
    last = host.operations.values_list("pk", "state").first()
    parts = [host.state, host.state_text, host.offered_key, host.facts_at, list(active), last]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


#: the host may still have to be told kvadmin's key
_NOT_IN_YET = (HostState.NEW, HostState.CONFIRM, HostState.REFUSED)


class DetailView(PermissionView):
    permission = "host.view"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        hosts = Host.objects.visible_to(request.user).select_related("jump")
        host = get_object_or_404(hosts, pk=pk)
        engines = host.engines.select_related("revision__profile").order_by("name")
        context = {
            "host": host,
            "mark": change_mark(host),
            "usable": host.is_local or (host.host_key and host.state != HostState.BLOCKED),
            "pinned": _shown_key(host.host_key),
            "offered": _shown_key(host.offered_key),
            "to_authorize": host.public_key and host.state in _NOT_IN_YET,
            "gpus": gpus_of(host.facts),
            "engines": engines,
            "behind": host.behind.order_by("name"),
            "environments": host.environments.order_by("version", "path"),
            "active": _active(host),
            "operations": host.operations.select_related("engine", "requested_by")[:10],
            **_discovery(host),
        }
        if not is_readable(host, "private_key", "passphrase", "password"):
            messages.warning(request, _("The stored secret cannot be read: enter it again."))
        return render(request, "engines/hosts/detail.html", context)


class StatusView(PermissionView):
    """Progress of what is under way; asks for a fresh page once something else changed."""

    permission = "host.view"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        host = get_object_or_404(Host.objects.visible_to(request.user), pk=pk)
        if request.GET.get("mark") != change_mark(host):
            response = HttpResponse()
            response["HX-Refresh"] = "true"
            return response
        return render(request, "engines/hosts/_active.html", {"host": host, "active": _active(host)})


class GpuMemory(PermissionView):
    """The chart's JSON of the GPU memory in use: ?range=24h."""

    permission = "host.view"

    def get(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        host = get_object_or_404(Host.objects.visible_to(request.user), pk=pk)
        return JsonResponse(gpu_memory_chart(host, request.GET.get("range", "")))


def _active(host: Host) -> list[Operation]:
    return list(host.operations.active().filter(engine=None).prefetch_related("steps"))


def _shown_key(line: str) -> dict[str, str] | None:
    return {"fingerprint": keys.fingerprint(line), "type": keys.key_type(line)} if line else None


def _discovery(host: Host) -> dict[str, Any]:
    """The last discovery, and of what it found only that which is not an engine yet."""
    last = host.operations.filter(kind=OperationKind.DISCOVER, state=OperationState.SUCCEEDED).first()
    if last is None:
        return {"discovery": None, "found": []}
    known = {
        (start.pid, start.start_ticks, start.boot_id)
        for engine in host.engines.select_related("current_start")
        if (start := engine.current_start) is not None
    }
    found = [
        server
        for server in last.scratch.get("servers", [])
        if (server["pid"], server["ticks"], last.scratch.get("boot_id")) not in known
    ]
    return {"discovery": last, "found": found, "unreadable": last.scratch.get("unreadable", 0)}
