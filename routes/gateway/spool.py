"""Where usage rows are until PostgreSQL has them: append-only files under KVADMIN_HOME/gateway/spool.

A row is in the file, by write(), when ``record`` returns; so it outlives a kill of the process. fdatasync
follows within SYNC_S in a thread; so at most that much is lost with the machine. Files are removed once
PostgreSQL has committed what is in them (shipper.py).

A file's first line names the columns, each line after it is one row (usagelines.py). A last line that was
torn by a crash has no end and is left out: the caller of that request never had its last byte.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import structlog

from routes.gateway.records import UsageRecord
from routes.gateway.slots import Slot
from routes.gateway.usagelines import HEAD, usage_line

#: ok: kept on disk. full: the spool is as large as it may be. disk: the disk refuses writes
SpoolState = Literal["ok", "full", "disk"]

SYNC_S = 0.05
#: a file is closed at this size, whatever
FILE_BYTES = 8 << 20
MAX_BYTES = 1 << 30
#: rows kept in memory while the disk takes none
MAX_HELD = 100_000
#: how long before a disk that refused a write is tried again
AGAIN_S = 1.0
SUFFIX = ".rows"

logger = structlog.get_logger("routes.gateway")


class Ledger:
    """One for each worker. Made outside a loop or in one; ``record`` is for the loop's thread only."""

    def __init__(
        self,
        base: Path,
        *,
        max_bytes: int = MAX_BYTES,
        file_bytes: int = FILE_BYTES,
        write: Callable[[int, bytes], int] = os.write,
    ):
        """``base`` is the spool's folder, shared by all workers of this machine. Raises OSError when no
        folder of its own can be made there."""
        self.base = base
        self.slot = Slot.claim(base)
        self.state: SpoolState = "ok"
        #: rows recorded, and rows that had to be dropped, since the start
        self.recorded = self.lost = 0
        #: syncs that failed
        self.unsynced = 0
        #: bytes in files that are not the one being written
        self.closed_bytes = 0
        self.closed: deque[Path] = deque(sorted(self.slot.folder.glob(f"*{SUFFIX}")))
        self.held: deque[bytes] = deque()
        self._max_bytes, self._file_bytes, self._write = max_bytes, file_bytes, write
        self._number = max((int(path.stem) for path in self.closed if path.stem.isdigit()), default=0)
        self.closed_bytes = sum(path.stat().st_size for path in self.closed)
        self._descriptor = -1
        self._path: Path | None = None
        self.open_bytes = self.open_rows = 0
        self._syncing = False
        self._again_at = 0.0
        self._thread = ThreadPoolExecutor(1, "spool-sync")

    @property
    def bytes(self) -> int:
        """What the spool takes of the disk."""
        return self.closed_bytes + self.open_bytes

    @property
    def empty(self) -> bool:
        return not self.closed and not self.open_rows and not self.held

    def record(self, row: UsageRecord) -> None:
        """Keep one row. When the disk refuses, it is held in memory; past MAX_HELD it is lost and counted."""
        self.record_all((row,))

    def record_all(self, rows: Sequence[UsageRecord]) -> None:
        """The same of several, in one write."""
        count = len(rows)
        self.recorded += count
        lines = [usage_line(row) for row in rows]
        if self.held or not self._append(lines[0] if count == 1 else b"".join(lines), count):
            for line in lines:
                self._hold(line)

    def _append(self, line: bytes, count: int = 1) -> bool:
        if self.closed_bytes + self.open_bytes + len(line) > self._max_bytes:
            self._say("full")
            return False
        try:
            if self._descriptor < 0:
                self._open()
            written = self._write(self._descriptor, line)
            if written < len(line):
                # the disk filled up within the line: none of it may stay
                os.ftruncate(self._descriptor, self.open_bytes)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._say("disk", error.strerror or type(error).__name__)
            return False
        self.open_bytes += written
        self.open_rows += count
        if not self._syncing:
            self._sync_soon()
        if self.open_bytes >= self._file_bytes:
            self.rotate()
        return True

    def _open(self) -> None:
        self._number += 1
        path = self.slot.folder / f"{self._number:010}{SUFFIX}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if self._write(descriptor, HEAD) < len(HEAD):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        self._descriptor, self._path = descriptor, path
        self.open_bytes, self.open_rows = len(HEAD), 0

    def _hold(self, line: bytes) -> None:
        if len(self.held) < MAX_HELD:
            self.held.append(line)
            return
        self.lost += 1
        if self.lost == 1 or self.lost % 10_000 == 0:
            logger.error("usage rows are lost: neither disk nor database takes them", rows=self.lost)

    def _say(self, state: SpoolState, why: str = "") -> None:
        if state == self.state:
            return
        self.state = state
        if state == "ok":
            logger.info("the spool takes usage rows again")
        elif state == "full":
            logger.error("the spool is full: PostgreSQL does not take usage rows", bytes=self.bytes)
        else:
            logger.error("the spool cannot be written", reason=why, folder=str(self.slot.folder))

    def retry(self, now: float) -> None:
        """Write what had to be held, if the disk takes it by now. Called every second or so."""
        if not self.held and self.state == "ok":
            return
        if now < self._again_at:
            return
        self._again_at = now + AGAIN_S
        while self.held:
            if not self._append(self.held[0]):
                return
            self.held.popleft()
        if self.bytes < self._max_bytes:
            self._say("ok")

    # -- syncing ----------------------------------------------------------------------------------------

    def _sync_soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            os.fdatasync(self._descriptor)
            return
        self._syncing = True
        loop.call_later(SYNC_S, self._sync)

    def _sync(self) -> None:
        self._syncing = False
        if self._descriptor >= 0:
            # a descriptor of its own: the file may be closed here before the thread gets to it
            self._submit(os.dup(self._descriptor))

    def _submit(self, descriptor: int) -> None:
        self._thread.submit(_sync_and_close, descriptor).add_done_callback(self._synced)

    def _synced(self, done: Future[None]) -> None:
        # in the thread; the rows are written, and lost only if the machine fails as well
        error = done.exception()
        if error is not None:
            self.unsynced += 1
            logger.error("the spool could not be synced to the disk", error=str(error))

    # -- for the shipper --------------------------------------------------------------------------------

    def rotate(self) -> None:
        """Close the file being written, so that it can be shipped; the next row opens another."""
        if self._descriptor < 0 or self._path is None or not self.open_rows:
            return
        self._submit(self._descriptor)
        self.closed.append(self._path)
        self.closed_bytes += self.open_bytes
        self._descriptor, self._path, self.open_bytes, self.open_rows = -1, None, 0, 0

    def remove(self, path: Path) -> None:
        """PostgreSQL has what is in this closed file."""
        size = path.stat().st_size if path.exists() else 0
        path.unlink(missing_ok=True)
        if path in self.closed:
            self.closed.remove(path)
            self.closed_bytes = max(0, self.closed_bytes - size)
        if self.state == "full" and not self.held:
            self._say("ok")

    def orphans(self) -> list[tuple[Slot, list[Path]]]:
        """Files of workers that are gone, with their folders taken, oldest first. Free each slot after."""
        found = []
        for number in Slot.numbers(self.base):
            if number == self.slot.number or not any((self.base / f"{number:04}").glob(f"*{SUFFIX}")):
                continue
            slot = Slot.of(self.base, number)
            if slot is not None:
                found.append((slot, sorted(slot.folder.glob(f"*{SUFFIX}"))))
        return found

    def close(self) -> None:
        """Close the open file; what is in it is for the next worker that starts."""
        self.rotate()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            if self._path is not None:
                self._path.unlink(missing_ok=True)
            self._descriptor, self._path, self.open_bytes = -1, None, 0
        self._thread.shutdown()
        self.slot.free()


def _sync_and_close(descriptor: int) -> None:
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path, offset: int, most: int) -> tuple[bytes, bytes, int]:
    """(the file's first line, whole lines from ``offset`` on of about ``most`` bytes, the offset after them).

    ``offset`` 0 is where the rows begin. Without a first line there is nothing to read.
    """
    with path.open("rb") as file:
        head = file.readline()
        if not head.endswith(b"\n"):
            return b"", b"", offset
        offset = max(offset, len(head))
        file.seek(offset)
        data = file.read(most)
        if data and b"\n" not in data:
            data += file.readline()
        data = data[: data.rfind(b"\n") + 1]
        return head, data, offset + len(data)
