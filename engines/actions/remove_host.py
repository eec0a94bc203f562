from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from engines.actions.host_input import picture
from engines.models import Host
from kvadmin.actions import Action, Conflict


@dataclass
class RemoveHost(Action[None]):
    """Forget a host, its credentials, operations and samples. Nothing on the host is touched; its
    audit rows stay. Refused while engines are on it or other hosts are reached through it.
    """

    verb: ClassVar[str] = "host.remove"
    permission: ClassVar[str] = "host.change"

    host: Host

    def subject(self) -> Host:
        return self.host

    def check(self) -> None:
        engines = list(self.host.engines.values_list("name", flat=True))
        if engines:
            raise Conflict(
                ngettext(
                    "An engine is on this host: %(names)s.",
                    "%(count)d engines are on this host: %(names)s.",
                    len(engines),
                )
                % {"count": len(engines), "names": ", ".join(engines)},
                code="host_has_engines",
                remedy=_("Stop and remove them first."),
            )
        behind = list(self.host.behind.values_list("name", flat=True))
        if behind:
            raise Conflict(
                _("Other hosts are reached through this one: %(names)s.") % {"names": ", ".join(behind)},
                code="host_is_jump",
                remedy=_("Give them another jump host, or remove them first."),
            )
        active = self.host.operations.active().first()
        if active is not None:
            raise Conflict(
                _("%(what)s is still under way.") % {"what": active},
                code="operation_active",
                remedy=_("Wait until it ends, or cancel it first."),
            )

    def execute(self) -> None:
        self.before = picture(self.host)
        self._pk = self.host.pk
        self.host.delete()
        # the audit row names what is gone
        self.host.pk = self._pk
