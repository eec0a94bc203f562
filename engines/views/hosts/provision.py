"""Provisioning vLLM on a host, and registering an environment that is there."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from engines.actions.provision_vllm import ProvisionVllm
from engines.models import Host
from engines.provision import versions
from engines.provision.facts import numbers
from engines.views.hosts.forms import ExistingForm, ProvisionForm
from kvadmin.actions import ActionError
from kvadmin.views.base import PermissionView, actor_of, add_action_error


class ProvisionView(PermissionView):
    permission = "host.operate"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        host = get_object_or_404(Host.objects.visible_to(request.user), pk=pk)
        no_gpu = bool(host.facts) and not host.facts.get("gpus")
        initial = {
            "version": next(iter(versions.CPU_TORCH)) if no_gpu else suggested_version(host),
            "variant": "cpu" if no_gpu else "cuda",
            "source": "wheels" if host.wheel_dir else "index",
        }
        return _page(request, host, ProvisionForm(host=host, initial=initial), ExistingForm())

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        host = get_object_or_404(Host.objects.visible_to(request.user), pk=pk)
        form = ProvisionForm(request.POST, host=host)
        if form.is_valid():
            try:
                return redirect(ProvisionVllm(actor_of(request), host=host, **form.cleaned_data).run())
            except ActionError as error:
                add_action_error(form, error)
        return _page(request, host, form, ExistingForm())


class RegisterView(PermissionView):
    permission = "host.operate"
    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        host = get_object_or_404(Host.objects.visible_to(request.user), pk=pk)
        form = ExistingForm(request.POST)
        if form.is_valid():
            try:
                return redirect(ProvisionVllm(actor_of(request), host=host, **form.cleaned_data).run())
            except ActionError as error:
                add_action_error(form, error)
        return _page(request, host, ProvisionForm(host=host, initial={"variant": "cuda"}), form)


def suggested_version(host: Host) -> str:
    """The newest version that the host's driver runs; the default one where that is not known."""
    drivers = [numbers(gpu.get("driver") or "") for gpu in host.facts.get("gpus", [])]
    drivers = [driver for driver in drivers if driver]
    if not drivers:
        return versions.DEFAULT_VERSION
    for version in versions.KNOWN_VERSIONS:
        release = versions.release_for(version)
        if release is not None and min(drivers) >= versions.driver_floor(release.cuda):
            return version
    return versions.DEFAULT_VERSION


def _page(request: HttpRequest, host: Host, form: ProvisionForm, existing: ExistingForm) -> HttpResponse:
    releases: list[dict[str, Any]] = [
        {
            "since": release.since,
            "python": f"{versions.written(release.python[0])} – 3.{release.python[1][1] - 1}",
            "glibc": versions.written(release.glibc),
            "torch": release.torch,
            "cuda": versions.written(release.cuda),
            "driver": versions.written(versions.driver_floor(release.cuda)),
        }
        for release in reversed(versions.RELEASES)
    ]
    context = {
        "host": host,
        "form": form,
        "existing_form": existing,
        "releases": releases,
        "pythons": host.facts.get("pythons", []),
    }
    return render(request, "engines/hosts/provision.html", context)
