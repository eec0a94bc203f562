"""What an engine's settings have to satisfy; shared by the actions that take them."""

from __future__ import annotations

import ipaddress
import re

from django.utils.translation import gettext as _

from engines.models import Engine, Host, VllmEnvironment

FIRST_PORT = 8000
_HOSTNAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")


def suggest_port(host: Host) -> int:
    """The first port from 8000 on that no engine of the host has."""
    taken = set(host.engines.values_list("port", flat=True))
    return next(port for port in range(FIRST_PORT, 65536) if port not in taken)


def default_bind_address(host: Host) -> str:
    """Where an engine listens unless told otherwise: where poller and gateway look for it."""
    return "127.0.0.1" if host.is_local and not host.service_address else host.service_host


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def name_problem(name: str, engine: Engine | None = None) -> str:
    """Why a name will not do, or an empty string."""
    if not name:
        return _("Give the engine a name.")
    if len(name) > 100:
        return _("Use at most 100 characters.")
    others = Engine.objects.filter(name=name)
    if engine is not None:
        others = others.exclude(pk=engine.pk)
    if others.exists():
        return _("There is an engine named %(name)s already: choose another name.") % {"name": name}
    return ""


def port_problem(host: Host, port: int, engine: Engine | None = None) -> str:
    if not 1 <= port <= 65535:
        return _("A port is a number from 1 to 65535.")
    other = Engine.objects.filter(host=host, port=port).exclude(pk=engine.pk if engine else None).first()
    if other is not None:
        return _("%(other)s has port %(port)d on %(host)s: choose another, for example %(free)d.") % {
            "other": other.name,
            "port": port,
            "host": host.name,
            "free": suggest_port(host),
        }
    return ""


def bind_problem(host: Host, address: str) -> str:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        if not _HOSTNAME.fullmatch(address):
            return _("Give an address of the host, for example %(example)s.") % {
                "example": default_bind_address(host)
            }
    if is_loopback(address) and not is_loopback(host.service_host):
        return _(
            "An engine on the loopback address of %(host)s cannot be reached from here: use %(address)s."
        ) % {"host": host.name, "address": host.service_host}
    return ""


def environment_problem(host: Host, environment: VllmEnvironment | None) -> str:
    if environment is None:
        return _("There is no vLLM on %(host)s yet: provision a version there first.") % {"host": host.name}
    if environment.host_id != host.pk:
        return _("That vLLM environment is on another host: choose one of %(host)s.") % {"host": host.name}
    if not environment.usable:
        return _("That vLLM environment cannot be used: %(note)s") % {"note": environment.note or "-"}
    return ""


def newest_environment(host: Host) -> VllmEnvironment | None:
    """The usable environment with the highest version."""
    usable = host.environments.filter(usable=True)
    return max(usable, key=lambda one: _version_key(one.version), default=None)


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:4])
