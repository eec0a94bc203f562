"""Looking at processes of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def _with(text: str) -> dict[int, str]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found[int(path.parent.name)] = line
    return found


def processes_with(text: str) -> list[str]:
    """Command lines of living processes that contain ``text``."""
    return list(_with(text).values())


def end_processes(text: str) -> None:
    """End the processes whose command line contains ``text``, which must be a test's own mark."""
    for pid in _with(text):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_until(check: Callable[[], object], seconds: float = 10) -> bool:
    """Whether ``check`` came true in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if check():
            return True
        time.sleep(0.05)
    return bool(check())
