from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from django.utils import timezone
from django.utils.translation import gettext as _

from engines.choices import HostState
from engines.models import Host
from engines.ssh.errors import HostError, HostKeyChanged, HostKeyUnknown, HostUnreachable, SignInRefused
from engines.ssh.session import session_for
from kvadmin.actions import Action


@dataclass
class ContactHost(Action[Host]):
    """Test the connection: reach the host, compare or take down its key, sign in, run a shell.

    The outcome is the host's state and ``state_text``; ``seconds`` is how long it took. Refuses
    nothing: a host that cannot be reached is an answer. Connects in ``check``, outside the transaction.
    """

    verb: ClassVar[str] = "host.contact"
    permission: ClassVar[str] = "host.operate"

    host: Host

    def subject(self) -> Host:
        return self.host

    def check(self) -> None:
        began = time.monotonic()
        self._error: HostError | None = None
        try:
            session = session_for(self.host)
            try:
                session.run("true", timeout_s=20)
            finally:
                session.close()
        except HostError as error:
            self._error = error
        self.seconds = time.monotonic() - began

    def execute(self) -> Host:
        host, error = self.host, self._error
        self.before = {"state": host.state}
        values = {"state": HostState.ONLINE, "state_text": "", "offered_key": ""}
        if error is None:
            values["last_seen_at"] = timezone.now()
        else:
            values["state_text"] = f"{error.message} {error.remedy}".strip()
            values |= _after(error)
            if not isinstance(error, HostKeyUnknown | HostKeyChanged):
                del values["offered_key"]
        # the connection that was tried went by this pinned key: a confirmation in between wins
        Host.objects.filter(pk=host.pk, host_key=host.host_key).update(**values)
        host.refresh_from_db()
        self.after = {"state": host.state}
        return host

    @property
    def sentence(self) -> str:
        """What the test found, for the person who asked for it."""
        if self._error is None:
            return _("Connected and signed in within %(seconds).1f s.") % {"seconds": self.seconds}
        if isinstance(self._error, HostKeyUnknown):
            return _("The host answers. Compare its key below, then confirm it.")
        return f"{self._error.message} {self._error.remedy}".strip()

    @property
    def connected(self) -> bool:
        return self._error is None


def _after(error: HostError) -> dict[str, str]:
    match error:
        case HostKeyUnknown():
            return {"state": HostState.CONFIRM, "state_text": "", "offered_key": error.offered}
        case HostKeyChanged():
            return {"state": HostState.BLOCKED, "offered_key": error.offered}
        case HostUnreachable():
            return {"state": HostState.UNREACHABLE}
        case SignInRefused():
            return {"state": HostState.REFUSED}
        case _:
            return {"state": HostState.REFUSED}
