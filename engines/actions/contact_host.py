from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from django.db import transaction

from engines.host_states import note_host_error, note_host_online
from engines.models import Host
from engines.ssh.errors import CommandTimeout, HostError, HostKeyUnknown, HostUnreachable
from engines.ssh.session import session_for
from kvadmin.actions import Action
from kvadmin.sentences import gettext as _


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
        if error is None:
            note_host_online(host)
        elif isinstance(error, CommandTimeout):
            note_host_error(host, HostUnreachable(error.message, remedy=error.remedy))
        else:
            note_host_error(host, error)
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


def contact_after_commit(host: Host) -> None:
    """Let a worker test the connection once the transaction has committed."""
    from engines.tasks.contact import contact_host

    transaction.on_commit(lambda: contact_host.delay(host.pk))
