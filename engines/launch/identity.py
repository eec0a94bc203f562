"""From an EngineStart's row to what its processes are known by."""

from __future__ import annotations

from engines.choices import Launcher
from engines.launch.files import unit_name
from engines.launch.scan import Files, Identity, Process
from engines.models import EngineStart


def identity_of(start: EngineStart) -> Identity:
    adopted = start.launcher == Launcher.ADOPTED
    marker = str(start.marker)
    return Identity(
        marker=marker,
        directory=start.directory,
        boot_id=start.boot_id,
        unit="" if adopted else start.unit or unit_name(start.engine_id, marker),
        session=0 if adopted else int(start.facts.get("session", 0)),
        records=frozenset((int(one["pid"]), int(one["ticks"])) for one in start.processes),
        any_marker=adopted,
        leader=(start.pid, start.start_ticks) if start.pid and start.start_ticks else None,
    )


def take_files(start: EngineStart, files: Files) -> list[str]:
    """Copy what the start's folder says into the row; the names of the fields that changed."""
    changed = []
    values = {
        "boot_id": files.boot_id,
        "pid": files.pid,
        "start_ticks": files.ticks,
        "exit_status": files.exit_status,
        "launcher": files.launcher if files.launcher in Launcher.values else "",
    }
    for name, value in values.items():
        if value not in {None, ""} and getattr(start, name) != value:
            setattr(start, name, value)
            changed.append(name)
    if files.launcher == Launcher.SESSION and files.wrapper and start.facts.get("session") != files.wrapper:
        start.facts["session"] = files.wrapper
        changed.append("facts")
    return changed


def record(start: EngineStart, members: list[Process]) -> bool:
    """Remember the start's processes; True if the list changed."""
    records = [one.record for one in members]
    if records == start.processes:
        return False
    start.processes = records
    return True
