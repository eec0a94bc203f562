"""Processes as /proc shows them: a pid alone is not an identity, a pid with its start ticks is."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Identity:
    """One process for as long as the machine runs; ``ticks`` is field 22 of /proc/<pid>/stat."""

    pid: int
    ticks: int


@dataclass(frozen=True)
class Stat:
    state: str
    parent: int
    group: int
    session: int
    ticks: int


def parse_stat(text: str) -> Stat:
    """A line of /proc/<pid>/stat. The name in brackets may itself hold blanks and brackets."""
    fields = text.rpartition(")")[2].split()
    return Stat(fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def stat(pid: int) -> Stat | None:
    """None when there is no such process, or only its zombie."""
    try:
        found = parse_stat((PROC / str(pid) / "stat").read_text(errors="replace"))
    except (OSError, IndexError, ValueError):
        return None
    return None if found.state in "ZX" else found


def identity(pid: int) -> Identity | None:
    found = stat(pid)
    return Identity(pid, found.ticks) if found else None


def alive(who: Identity) -> bool:
    return identity(who.pid) == who


def environ(pid: int) -> dict[str, str]:
    """The environment the process was started with; empty when it may not be read."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if b"=" in item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def command_line(pid: int) -> str:
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return " ".join(os.fsdecode(part) for part in raw.split(b"\0") if part)


def working_folder(pid: int) -> Path | None:
    try:
        return (PROC / str(pid) / "cwd").readlink()
    except OSError:
        return None


def open_files(pid: int) -> list[str]:
    """What the process's descriptors point to; empty when it may not be seen."""
    links = []
    try:
        for entry in (PROC / str(pid) / "fd").iterdir():
            # one may be closed while the list is read
            with contextlib.suppress(OSError):
                links.append(str(entry.readlink()))
    except OSError:
        return links
    return links


def every_pid() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def session_members(session: int) -> list[Identity]:
    members = []
    for pid in every_pid():
        found = stat(pid)
        if found and found.session == session:
            members.append(Identity(pid, found.ticks))
    return members


def signal_if(who: Identity, number: int) -> None:
    """Send the signal if the process is still the one meant."""
    if alive(who):
        with contextlib.suppress(ProcessLookupError):
            os.kill(who.pid, number)


def wait_until(condition: Callable[[], bool], seconds: float, every: float = 0.05) -> bool:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(every)
    return True


def end(who: Identity, first: int = signal.SIGTERM, seconds: float = 10) -> None:
    """End one process: ``first``, then SIGKILL after ``seconds``. Returns when it is gone."""
    signal_if(who, first)
    if not wait_until(lambda: not alive(who), seconds):
        signal_if(who, signal.SIGKILL)
        wait_until(lambda: not alive(who), 5)
