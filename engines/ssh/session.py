"""Sessions on a host: run a POSIX shell script, read and write files. The effects side of SSH.

``session_for(host)`` gives a connection to a host, over SSH or on this machine; both behave alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engines.models import Host


@dataclass(frozen=True)
class Result:
    """What a script did: exit status, and its output as text (UTF-8, bad bytes replaced).

    ``truncated``: more than 8 MiB came on one of the streams, and the rest of it was dropped.
    """

    status: int
    stdout: str
    stderr: str
    truncated: bool = False


class Session(Protocol):
    """A connection to one host. Every method may raise a HostError."""

    def run(
        self, script: str, *, args: Sequence[str] = (), stdin: bytes = b"", timeout_s: float = 30
    ) -> Result:
        """Run a POSIX sh script with ``args`` as $1, $2, … whatever the login shell is.

        Script, arguments and ``stdin`` do not appear in the host's process list. The home folder is
        the working directory, LC_ALL is C. After ``timeout_s`` the script's process group is ended on
        the host and CommandTimeout raised; what the script started with setsid lives on.
        """

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes of a file from ``offset``; fewer at its end, none past it."""

    def write_file(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file whole (temporary file, then rename); its folder is made with mode 0700."""

    def size(self, path: str) -> int | None:
        """A file's size in bytes, None when there is none."""

    def close(self) -> None:
        """Give the connection back."""


def session_for(host: Host) -> Session:
    """A connection to the host; raises HostError when it cannot be had.

    Connections over SSH are pooled in this process: closing a session gives it back.
    """
    from engines.ssh.local import local_session

    if host.is_local:
        return local_session()
    from engines.ssh.pool import ssh_session

    return ssh_session(host)
