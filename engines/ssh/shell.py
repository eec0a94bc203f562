"""A Session over anything that can run one constant command: framing, files, errors."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engines.ssh import command
from engines.ssh.errors import (
    HostDiskFull,
    HostError,
    HostFileDenied,
    HostFileMissing,
    HostShellUnusable,
    HostUnreachable,
)
from engines.ssh.parse import Frame, first_line, says_denied, says_no_space
from engines.ssh.session import Result
from kvadmin.sentences import gettext as _

#: most bytes of one output stream that are kept; the rest is read and dropped
OUTPUT_LIMIT = 8 * 1024 * 1024


@dataclass
class Exchange:
    """One run in progress: what to send, and what has come back."""

    payload: bytes
    stdout: Frame
    stderr: Frame
    timeout_s: float

    @property
    def ended(self) -> bool:
        return self.stdout.ended and self.stderr.ended


class Line(Protocol):
    """Runs BOOTSTRAP once for an exchange: sends the payload, feeds both frames, until they have ended.

    Raises CommandTimeout after ending the script on the host, HostUnreachable when it was cut off.
    Returns also when the command ended without its end mark.
    """

    def carry(self, exchange: Exchange) -> None: ...

    def close(self) -> None: ...


class ShellSession:
    """The Session contract over a Line. ``name`` is the host's name, for sentences."""

    def __init__(self, line: Line, name: str):
        self._line = line
        self.name = name

    def run(
        self, script: str, *, args: Sequence[str] = (), stdin: bytes = b"", timeout_s: float = 30
    ) -> Result:
        status, stdout, stderr, truncated = self._run(script, args, stdin, timeout_s, OUTPUT_LIMIT)
        return Result(status, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"), truncated)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        status, stdout, stderr, _truncated = self._run(
            command.READ_RANGE, (path, str(max(0, offset)), str(max(0, length))), b"", 60, length
        )
        if status:
            raise self._file_error(path, status, stderr.decode("utf-8", "replace"))
        return stdout

    def write_file(self, path: str, data: bytes, mode: int = 0o600) -> None:
        timeout_s = 60 + len(data) / 500_000
        status, _stdout, stderr, _truncated = self._run(
            command.WRITE_FILE, (path, f"{mode:04o}", str(len(data))), data, timeout_s, OUTPUT_LIMIT
        )
        if status:
            raise self._file_error(path, status, stderr.decode("utf-8", "replace"))

    def size(self, path: str) -> int | None:
        status, stdout, stderr, _truncated = self._run(command.SIZE, (path,), b"", 30, OUTPUT_LIMIT)
        if status == 3:
            return None
        if status:
            raise self._file_error(path, status, stderr.decode("utf-8", "replace"))
        return int(stdout.split()[0])

    def close(self) -> None:
        self._line.close()

    def _run(
        self, script: str, args: Sequence[str], stdin: bytes, timeout_s: float, limit: int
    ) -> tuple[int, bytes, bytes, bool]:
        nonce = secrets.token_hex(16)
        exchange = Exchange(
            payload=command.program(script, args, nonce=nonce, limit_s=timeout_s) + stdin,
            stdout=Frame(nonce, limit),
            stderr=Frame(nonce, OUTPUT_LIMIT),
            timeout_s=timeout_s,
        )
        self._line.carry(exchange)
        out, err = exchange.stdout, exchange.stderr
        for frame in (out, err):
            frame.close()
        if out.status is None:
            raise self._no_answer(out, err)
        return out.status, bytes(out.body), bytes(err.body), out.truncated or err.truncated

    def _no_answer(self, out: Frame, err: Frame) -> HostError:
        if out.pid is not None:
            return HostUnreachable(
                _("The command on %(host)s was ended from outside before it finished.") % {"host": self.name},
                remedy=_("Try again; if it comes back, look at the host's own log."),
            )
        said = first_line(err.noise) or first_line(out.noise)
        message = (
            _("Signing in to %(host)s worked, but no shell ran there. It printed: %(text)s")
            if said
            else _("Signing in to %(host)s worked, but no shell ran there.")
        )
        return HostShellUnusable(
            message % {"host": self.name, "text": said},
            remedy=_("Give the user a login shell that may run /bin/sh, such as /bin/bash."),
        )

    def _file_error(self, path: str, status: int, stderr: str) -> HostError:
        names = {"host": self.name, "path": path, "text": first_line(stderr.encode())}
        if says_no_space(stderr):
            return HostDiskFull(
                _("%(host)s has no space left for %(path)s.") % names,
                remedy=_("Free some space on that disk, or choose another folder for this host."),
            )
        if status == 3:
            return HostFileMissing(_("There is no file %(path)s on %(host)s.") % names)
        if status == 4 or says_denied(stderr):
            return HostFileDenied(
                _("The user signed in to %(host)s may not use %(path)s.") % names,
                remedy=_("Change the file's owner or permissions on the host, or sign in as another user."),
            )
        if status == 6:
            return HostUnreachable(_("Writing %(path)s on %(host)s was cut off.") % names)
        return HostError(_("%(path)s on %(host)s: %(text)s") % names)
