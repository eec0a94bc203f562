"""How a host's state follows from what connecting to it gave. The one place that decides it.

Nothing here touches the host's engines: a host that cannot be reached says nothing about them.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from engines.choices import HostState
from engines.models import Host
from engines.ssh.errors import (
    CommandTimeout,
    HostError,
    HostKeyChanged,
    HostKeyUnknown,
    HostKeyUnusable,
    HostMisconfigured,
    HostShellUnusable,
    HostUnreachable,
    SignInRefused,
)
from kvadmin.sentences import gettext as _
from kvadmin.sentences import joined


def note_host_error(host: Host, error: HostError) -> HostState | None:
    """Write down why a host could not be worked on; the state it is in now, None if that did not change.

    Errors that are not about the connection (a full disk, a slow command) change nothing. One that a
    jump host in between gave is written to that host, and this one is unreachable. Loses against a
    person who confirmed another key meanwhile. Refreshes the instance.
    """
    hop = getattr(error, "hop", "")
    if hop and hop != host.name:
        jump = Host.objects.filter(name=hop).first()
        if jump is not None:
            _write(jump, _values_after(error))
        values: dict[str, Any] | None = {
            "state": HostState.UNREACHABLE,
            "state_text": _("The jump host %(jump)s cannot be used: %(text)s")
            % {"jump": hop, "text": _text(error)},
        }
    else:
        values = _values_after(error)
    return _write(host, values)


def note_host_online(host: Host, *, boot_id: str = "") -> None:
    """Write down that a host was worked on just now. Refreshes the instance."""
    values: dict[str, Any] = {
        "state": HostState.ONLINE,
        "state_text": "",
        "offered_key": "",
        "last_seen_at": timezone.now(),
    }
    if boot_id:
        values["boot_id"] = boot_id
    _write(host, values)


def _values_after(error: HostError) -> dict[str, Any] | None:
    text = {"state_text": _text(error)}
    match error:
        case HostKeyUnknown():
            # the page shows the key to confirm, which says it all
            return {"state": HostState.CONFIRM, "offered_key": error.offered, "state_text": ""}
        case HostKeyChanged():
            return {"state": HostState.BLOCKED, "offered_key": error.offered, **text}
        case SignInRefused() | HostKeyUnusable() | HostShellUnusable() | HostMisconfigured():
            return {"state": HostState.REFUSED, **text}
        case CommandTimeout():
            return None
        case HostUnreachable():
            return {"state": HostState.UNREACHABLE, **text}
        case _:
            return None


def _text(error: HostError) -> str:
    return joined(error.message, error.remedy)


def _write(host: Host, values: dict[str, Any] | None) -> HostState | None:
    if values is None:
        return None
    written = Host.objects.filter(pk=host.pk, host_key=host.host_key).update(**values)
    host.refresh_from_db(fields=["state", "state_text", "offered_key", "host_key", "last_seen_at", "boot_id"])
    return HostState(host.state) if written else None
