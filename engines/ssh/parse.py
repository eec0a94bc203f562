"""Reads what a run printed: the part between the nonce's marks, bounded. Pure."""

from __future__ import annotations

import re

#: what is kept of the noise before the begin mark, for the sentence when no mark comes
NOISE_KEPT = 2000
_LONGEST_NUMBER = 24


class Frame:
    """One output stream of a run, fed in pieces of any size.

    ``body`` holds at most ``limit`` bytes of the script's own output (``truncated`` says whether more
    came); ``pid`` is the script's group leader once begun; ``status`` the exit status once ended.
    """

    def __init__(self, nonce: str, limit: int):
        self._begin = f"{nonce}:begin:".encode()
        self._end = f"{nonce}:end:".encode()
        self._limit = limit
        self._pending = bytearray()
        self.noise = b""
        self.body = bytearray()
        self.truncated = False
        self.pid: int | None = None
        self.status: int | None = None

    @property
    def ended(self) -> bool:
        return self.status is not None

    def feed(self, data: bytes) -> None:
        if self.ended or not data:
            return
        self._pending += data
        if self.pid is None and not self._find_begin():
            return
        found = self._number_after(self._end)
        if found is None:
            return
        start, _, self.status = found
        self._commit(start)
        self._pending.clear()

    def close(self) -> None:
        """No more data comes: what was held back as the possible start of a mark is output."""
        if not self.ended:
            self._put_by(len(self._pending))

    def _find_begin(self) -> bool:
        found = self._number_after(self._begin)
        if found is None:
            return False
        start, stop, self.pid = found
        self.noise = (self.noise + bytes(self._pending[:start]))[:NOISE_KEPT]
        del self._pending[:stop]
        return True

    def _number_after(self, mark: bytes) -> tuple[int, int, int] | None:
        """(start, end, number) of the whole mark line; without one, what cannot be its start is put by."""
        start = self._pending.find(mark)
        if start >= 0:
            match = re.compile(rb"(\d{1,20})\n").match(self._pending, start + len(mark))
            if match:
                return start, match.end(), int(match[1])
            self._put_by(start)
            return None
        self._put_by(max(0, len(self._pending) - len(mark) - _LONGEST_NUMBER))
        return None

    def _put_by(self, count: int) -> None:
        if self.pid is not None:
            self._commit(count)
        elif count:
            self.noise = (self.noise + bytes(self._pending[:count]))[:NOISE_KEPT]
            del self._pending[:count]

    def _commit(self, count: int) -> None:
        room = self._limit - len(self.body)
        if count > room:
            self.truncated = True
        self.body += self._pending[: min(count, room)]
        del self._pending[:count]


def first_line(noise: bytes) -> str:
    """The first printed line of some output, for a sentence; at most 200 characters."""
    text = noise.decode("utf-8", "replace").strip()
    return text.splitlines()[0].strip()[:200] if text else ""


def says_no_space(stderr: str) -> bool:
    """Whether a tool (under LC_ALL=C) complained about space or quota."""
    return any(
        phrase in stderr
        for phrase in (
            "No space left on device",
            "Disk quota exceeded",
            "File too large",
            "File size limit exceeded",
        )
    )


def says_denied(stderr: str) -> bool:
    return any(
        phrase in stderr
        for phrase in ("Permission denied", "Operation not permitted", "Read-only file system")
    )
