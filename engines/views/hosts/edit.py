"""Adding and changing a host."""

from __future__ import annotations

import socket
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from engines.actions.add_host import AddHost
from engines.actions.change_host import ChangeHost
from engines.choices import HostKind
from engines.models import Host
from engines.views.hosts.forms import LocalForm, SshForm
from kvadmin.actions import ActionError
from kvadmin.views.base import PermissionView, actor_of, add_action_error, attempt


class AddView(PermissionView):
    permission = "host.change"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._page(request, SshForm())

    def post(self, request: HttpRequest) -> HttpResponse:
        form = SshForm(request.POST, request.FILES)
        if form.is_valid():
            try:
                host = AddHost(actor_of(request), kind=HostKind.SSH, **form.action_input()).run()
            except ActionError as error:
                add_action_error(form, error)
            else:
                return redirect(host)
        return self._page(request, form)

    def _page(self, request: HttpRequest, form: SshForm) -> HttpResponse:
        context: dict[str, Any] = {
            "form": form,
            "has_local": Host.objects.filter(kind=HostKind.LOCAL).exists(),
            "machine": socket.gethostname(),
        }
        return render(request, "engines/hosts/add.html", context)


class AddLocal(PermissionView):
    """One click: the machine that kvadmin's worker runs on."""

    permission = "host.change"
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        present = Host.objects.filter(kind=HostKind.LOCAL).first()
        if present is not None:
            messages.info(request, _("This machine is among the hosts already."))
            return redirect(present)
        host = attempt(
            request,
            AddHost(actor_of(request), kind=HostKind.LOCAL, name=_free_name(socket.gethostname())),
            _("This machine was added. It is probed now."),
        )
        return redirect(host if host is not None else "engines:host_add")


def _free_name(wanted: str) -> str:
    wanted = wanted.split(".")[0][:90] or "this-machine"
    taken = set(Host.objects.filter(name__startswith=wanted).values_list("name", flat=True))
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name


class EditView(PermissionView):
    permission = "host.change"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        host = get_object_or_404(Host.objects.visible_to(request.user), pk=pk)
        return self._page(request, host, self._form(host))

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        host = get_object_or_404(Host.objects.visible_to(request.user), pk=pk)
        form = self._form(host, request.POST, request.FILES)
        if form.is_valid():
            try:
                ChangeHost(actor_of(request), host=host, **form.action_input()).run()
            except ActionError as error:
                add_action_error(form, error)
            else:
                messages.success(request, _("Saved."))
                return redirect(host)
        return self._page(request, host, form)

    @staticmethod
    def _form(host: Host, *sent: Any) -> SshForm | LocalForm:
        names = (
            "name", "address", "port", "username", "jump", "service_address", "work_dir", "model_dirs",
            "index_url", "wheel_dir", "proxy",
        )  # fmt: skip
        initial = {name: getattr(host, name) for name in names}
        if host.is_local:
            return LocalForm(*sent, initial=initial)
        return SshForm(*sent, initial=initial, host=host)

    def _page(self, request: HttpRequest, host: Host, form: SshForm | LocalForm) -> HttpResponse:
        return render(request, "engines/hosts/edit.html", {"host": host, "form": form})
