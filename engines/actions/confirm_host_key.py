from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.utils.translation import gettext as _

from engines.choices import HostState, OperationKind
from engines.models import Host, Operation
from engines.operations.begin import begin_operation
from engines.ssh import keys
from kvadmin.actions import Action, Conflict, Invalid


@dataclass
class ConfirmHostKey(Action[Host]):
    """A person accepts the key a host shows; from then on no other is.

    ``fingerprint`` is the one the person saw: if the host shows another by now, it is refused.
    In place of a key pinned before, ``replace`` has to be true. A probe follows.
    """

    verb: ClassVar[str] = "host.confirm_key"
    permission: ClassVar[str] = "host.change"

    host: Host
    fingerprint: str
    replace: bool = False

    def subject(self) -> Host:
        return self.host

    def check(self) -> None:
        self.host.refresh_from_db()
        if not self.host.offered_key:
            raise Conflict(
                _("There is no key to confirm for this host."),
                code="no_offered_key",
                remedy=_("Test the connection: the host then shows its key."),
            )
        if keys.fingerprint(self.host.offered_key) != self.fingerprint.strip():
            raise Conflict(
                _("The host shows another key by now than the one you were shown."),
                code="host_key_moved",
                remedy=_("Compare the new fingerprint with the host's own, then confirm that one."),
            )
        if self.host.host_key and not self.replace:
            raise Invalid(
                _("This would replace the key that was confirmed before: say that you mean it."),
                code="replace_not_chosen",
                field="replace",
            )

    def execute(self) -> Host:
        host = self.host
        self.before = {"fingerprint": keys.fingerprint(host.host_key) if host.host_key else ""}
        host.host_key, host.offered_key = host.offered_key, ""
        host.state, host.state_text = HostState.NEW, ""
        host.save(update_fields=["host_key", "offered_key", "state", "state_text", "updated_at"])
        self.after = {"fingerprint": keys.fingerprint(host.host_key)}
        if not Operation.objects.active().filter(host=host, engine=None, kind=OperationKind.PROBE).exists():
            begin_operation(OperationKind.PROBE, actor=self.actor, host=host)
        return host
