"""Whether another way to reach a host leads to the machine on which its engines run."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import gettext as _

from engines.models import EngineStart, Host
from engines.ssh.errors import HostError
from engines.ssh.session import session_for
from kvadmin.actions import Conflict

_LOOK = """
cat /proc/sys/kernel/random/boot_id || exit 1
for folder; do
    if [ -d "$folder" ]; then echo "there"; fi
done
"""


def refuse_another_machine(host: Host, starts: Iterable[EngineStart], *, field: str) -> None:
    """Connect as ``host`` says, saved or not; Conflict unless that is where the starts are.

    It shows the pinned host key (or is not signed in to) and has either the boot in which one of them
    was launched, or its folder: a host that was restarted meanwhile.
    """
    starts = list(starts)
    boots = {start.boot_id for start in starts} | {host.boot_id}
    folders = [start.directory for start in starts if start.directory]
    try:
        session = session_for(host)
        try:
            seen = session.run(_LOOK, args=folders, timeout_s=20).stdout.split()
        finally:
            session.close()
    except HostError as error:
        raise Conflict(
            _("Engines may run on this host, and it was not reached as you say: %(error)s")
            % {"error": error.message},
            code=error.code,
            remedy=_("Nothing was changed. Change it once the host answers there. %(remedy)s")
            % {"remedy": error.remedy},
            field=field,
        ) from error
    if boots - {""} and not boots & set(seen[:1]) and "there" not in seen[1:]:
        names = ", ".join(sorted({start.engine.name for start in starts}))
        raise Conflict(
            _("That is another machine than the one on which these engines run: %(names)s.")
            % {"names": names},
            code="another_machine",
            remedy=_("Add it as a host of its own, or stop these engines first."),
            field=field,
        )
