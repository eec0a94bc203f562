"""What the supervisor says of its processes, in ``run/up.json``: for the console and for the next start."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from kvadmin.up import proc

STARTING, RUNNING, WAITING, STOPPED = "starting", "running", "waiting", "stopped"


@dataclass(frozen=True)
class ProcessStatus:
    """``since`` is when the state began, ISO 8601 in UTC. ``waiting`` is between an end and the next
    start. ``last_exit`` is the last end in words, empty if there was none."""

    name: str
    state: str = STARTING
    pid: int | None = None
    ticks: int | None = None
    restarts: int = 0
    since: str = ""
    last_exit: str = ""

    @property
    def since_at(self) -> datetime | None:
        return datetime.fromisoformat(self.since) if self.since else None


@dataclass(frozen=True)
class UpStatus:
    """One run of the supervisor: ``run`` marks its processes, ``pid`` and ``ticks`` are its own."""

    run: str
    pid: int
    ticks: int
    console_url: str
    gateway_url: str
    processes: list[ProcessStatus] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return proc.alive(proc.Identity(self.pid, self.ticks))


def status_file(home: Path) -> Path:
    return home / "run" / "up.json"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def decode(text: str) -> UpStatus | None:
    """None when the text is not a whole status: a full disk can cut it short."""
    try:
        data = json.loads(text)
        return UpStatus(**{**data, "processes": [ProcessStatus(**item) for item in data["processes"]]})
    except (ValueError, TypeError, KeyError):
        return None


def read(home: Path) -> UpStatus | None:
    """The last written status, of a supervisor that may be gone."""
    try:
        return decode(status_file(home).read_text())
    except OSError:
        return None


def write(home: Path, status: UpStatus) -> None:
    """Replace the file whole. OSError when the disk does not take it."""
    part = status_file(home).with_suffix(".part")
    part.write_text(json.dumps(asdict(status), indent=1))
    os.replace(part, status_file(home))  # noqa: PTH105 (Path.replace is the same call)


def read_status(home: Path | None = None) -> list[ProcessStatus]:
    """The supervised processes for a page; empty when kvadmin was not started by ``manage.py up``."""
    if home is None:
        from kvadmin.env import environment

        home = environment().home
    found = read(home)
    if found is None:
        return []
    if found.alive:
        return found.processes
    return [
        item if item.pid and item.ticks and proc.alive(proc.Identity(item.pid, item.ticks))
        else replace(item, state=STOPPED)
        for item in found.processes
    ]  # fmt: skip
