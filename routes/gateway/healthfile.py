"""Health of targets, shared by the workers of one gateway: a file that all of them map into memory.

What one worker learns of a target stands there for the others at once, and costs them a read of memory. Who
holds a target's probe is a lock on a byte of the file: however the worker ends, the kernel takes it back. The
first worker that starts while no other lives begins anew; so nothing outlives the gateway, nor a boot, after
which the clock that the file's times are of begins again.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from hashlib import blake2b
from pathlib import Path

import structlog

from routes.gateway.health import NUMBERS, Health
from routes.gateway.records import TargetRecord

#: targets, each with an address, since the gateway began; those beyond are each worker's own
PLACES = 8192
_KEY = 16
_REASON = 128
#: what is locked: while a place is taken or the file made; for as long as a worker lives; a target's probe
_TAKING, _LIVING, _PROBES = 0, 1, 64
#: bytes of the header (the first number is how many places are taken), then numbers, keys and reasons
_VALUES = 64
_KEYS = _VALUES + PLACES * NUMBERS * 8
_REASONS = _KEYS + PLACES * _KEY
_SIZE = _REASONS + PLACES * _REASON

logger = structlog.get_logger("routes.gateway")


class HealthFile:
    """One for each worker. ``folder`` belongs to one gateway, is made if it is missing. Raises OSError."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._descriptor = os.open(folder / "targets", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._full = False
        with self._taking():
            alone = self._lock(fcntl.F_WRLCK, _LIVING)
            # all of it now: a full disk must not end the process at the first touch of a page
            os.posix_fallocate(self._descriptor, 0, _SIZE)
            self._map = mmap.mmap(self._descriptor, _SIZE)
            if alone:
                self._map[:] = bytes(_SIZE)
            self._lock(fcntl.F_RDLCK, _LIVING)
        self._numbers = memoryview(self._map).cast("d")

    def of(self, target: TargetRecord) -> Health:
        """The health of a target at its address, which the others see too."""
        key = blake2b(f"{target.id} {target.base_url}".encode(), digest_size=_KEY).digest()
        with self._taking():
            place = self._place(key)
        if place is None:
            if not self._full:
                logger.warning("health of further targets is each worker's own", targets=PLACES)
            self._full = True
            return Health()
        return Health(_Place(self, place))

    def _place(self, key: bytes) -> int | None:
        at = self._map.find(key, _KEYS, _REASONS)
        if at >= 0:
            return (at - _KEYS) // _KEY
        place = int(self._numbers[0])
        if place == PLACES:
            return None
        self._map[_KEYS + place * _KEY : _KEYS + (place + 1) * _KEY] = key
        self._numbers[0] = place + 1
        return place

    def close(self) -> None:
        """Leave everything that is held; the health given out is of no use any more."""
        self._lock(fcntl.F_UNLCK, 0, 0)
        os.close(self._descriptor)

    # -- locks ------------------------------------------------------------------------------------------

    def _taking(self) -> _Taking:
        return _Taking(self)

    def _lock(self, kind: int, start: int, length: int = 1, *, wait: bool = False) -> bool:
        """Of this opening of the file, not of the process. False when another has it."""
        command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
        try:
            fcntl.fcntl(self._descriptor, command, _flock(kind, start, length))
        except BlockingIOError:
            return False
        return True

    def _is_locked(self, start: int) -> bool:
        """By another than this one."""
        found = fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, start, 1))
        return struct.unpack_from("h", found)[0] != fcntl.F_UNLCK


def _flock(kind: int, start: int, length: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)


class _Taking:
    """For the moment that a place is looked for: one worker at a time."""

    def __init__(self, file: HealthFile):
        self.file = file

    def __enter__(self) -> None:
        self.file._lock(fcntl.F_WRLCK, _TAKING, wait=True)

    def __exit__(self, *exc: object) -> None:
        self.file._lock(fcntl.F_UNLCK, _TAKING)


class _Place:
    """A target's record (``health.Record``) in the file."""

    __slots__ = ("_byte", "_file", "_reason", "values")

    def __init__(self, file: HealthFile, place: int):
        self._file = file
        self._byte = _PROBES + place
        self._reason = _REASONS + place * _REASON
        start = _VALUES // 8 + place * NUMBERS
        self.values = file._numbers[start : start + NUMBERS]

    @property
    def reason(self) -> str:
        data = self._file._map[self._reason : self._reason + _REASON]
        return data.partition(b"\0")[0].decode(errors="ignore")

    @reason.setter
    def reason(self, text: str) -> None:
        data = text.encode()[: _REASON - 1]
        self._file._map[self._reason : self._reason + _REASON] = data.ljust(_REASON, b"\0")

    def hold_probe(self) -> bool:
        return self._file._lock(fcntl.F_WRLCK, self._byte)

    def leave_probe(self) -> None:
        self._file._lock(fcntl.F_UNLCK, self._byte)

    def probe_is_held(self) -> bool:
        return self._file._is_locked(self._byte)
