"""The check shared by every action that works on a host: it may be connected to at all."""

from __future__ import annotations

from django.utils.translation import gettext as _

from engines.choices import HostState
from engines.models import Host
from kvadmin.actions import Conflict


def refuse_unconfirmed(host: Host) -> None:
    """Conflict while the host's key is unconfirmed or changed. Unreachable is no reason to refuse."""
    if host.is_local:
        return
    if host.state == HostState.BLOCKED:
        raise Conflict(
            _("The host shows another key than the confirmed one; nothing is done on it."),
            code="host_key_changed",
            remedy=_("Find out why on the host's page, then confirm the new key or repair the host."),
        )
    if not host.host_key:
        raise Conflict(
            _("The host's key is not confirmed yet."),
            code="host_key_unknown",
            remedy=_("Compare and confirm its fingerprint on the host's page."),
        )
