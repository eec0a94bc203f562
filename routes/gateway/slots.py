"""A worker's number on its machine: a folder of its own under KVADMIN_HOME, held by a lock while it lives.

A worker that starts takes the lowest number that is free, so it goes on with what a worker that ended left
there.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

#: no machine runs more workers of a gateway
_MOST = 1024


class Slot:
    """``folder`` belongs to this process until it ends or calls ``free``."""

    def __init__(self, number: int, folder: Path, descriptor: int):
        self.number, self.folder = number, folder
        self._descriptor = descriptor

    @classmethod
    def claim(cls, base: Path) -> Slot:
        """The lowest free number under ``base``, which is made if it is missing. Raises OSError."""
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(_MOST):
            slot = cls.of(base, number)
            if slot is not None:
                return slot
        raise OSError(f"all {_MOST} folders under {base} are in use")

    @classmethod
    def of(cls, base: Path, number: int) -> Slot | None:
        """That number, if nobody has it."""
        folder = base / f"{number:04}"
        folder.mkdir(exist_ok=True, mode=0o700)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return cls(number, folder, descriptor)

    @classmethod
    def numbers(cls, base: Path) -> list[int]:
        """Every number that was ever in use."""
        if not base.is_dir():
            return []
        return sorted(int(path.name) for path in base.iterdir() if path.name.isdigit() and path.is_dir())

    @staticmethod
    def is_free(folder: Path) -> bool:
        """Whether no living worker has this folder."""
        try:
            descriptor = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def free(self) -> None:
        os.close(self._descriptor)
