"""Which processes belong to a start. Pure: reads what scripts/scan.sh prints.

A process belongs to a start when its environment has the start's marker, when it is in the start's
systemd unit, when (boot id, pid, start ticks) were recorded, when it shares the start's session with one
that is known so, or when it descends from one that is. Nothing else is ever signalled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


class ScanIncomplete(ValueError):
    """The answer was cut. Nothing may be concluded from what is not in it."""


@dataclass(frozen=True)
class Process:
    """A live process. ``ticks`` is its start time in clock ticks since boot; ``rss`` in pages."""

    pid: int
    parent: int
    session: int
    ticks: int
    state: str
    rss: int = 0
    marker: str = ""
    unit: str = ""
    name: str = ""

    @property
    def gone(self) -> bool:
        return self.state in {"Z", "X", "x"}

    @property
    def record(self) -> dict[str, int | str]:
        return {"pid": self.pid, "ticks": self.ticks, "name": self.name}

    @property
    def token(self) -> str:
        return f"{self.pid}:{self.ticks}"


@dataclass(frozen=True)
class Identity:
    """By what a start's processes are known. ``session`` is 0 where the start has none of its own."""

    marker: str
    directory: str = ""
    boot_id: str = ""
    unit: str = ""
    session: int = 0
    records: frozenset[tuple[int, int]] = frozenset()
    leader: tuple[int, int] | None = None
    #: an adopted engine's processes may carry the marker of whoever started them
    any_marker: bool = False

    def allows(self, process: Process) -> bool:
        return self.any_marker or process.marker in {"", self.marker}


@dataclass
class Files:
    """What a start's folder says. ``log_size`` in bytes; None fields are not written yet."""

    present: bool = False
    log_size: int = 0
    boot_id: str = ""
    launcher: str = ""
    pid: int | None = None
    ticks: int | None = None
    wrapper: int | None = None
    wrapper_ticks: int | None = None
    exit_status: int | None = None


@dataclass
class Scan:
    boot_id: str
    files: dict[str, Files] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)

    def files_of(self, identity: Identity) -> Files:
        return self.files.get(identity.marker, Files())

    def members(self, identity: Identity) -> list[Process]:
        """Every live process that surely belongs to the start, the leader first."""
        files = self.files_of(identity)
        records = set(identity.records)
        if identity.leader:
            records.add(identity.leader)
        same_boot = identity.boot_id in {"", self.boot_id}
        if files.boot_id == self.boot_id:
            for pair in ((files.pid, files.ticks), (files.wrapper, files.wrapper_ticks)):
                if None not in pair:
                    records.add(pair)  # type: ignore[arg-type]
        known = {
            process.pid
            for process in self.processes.values()
            if process.marker == identity.marker
            or (identity.unit and process.unit == identity.unit)
            or (same_boot and (process.pid, process.ticks) in records and identity.allows(process))
        }
        sessions = {identity.session, files.wrapper if files.launcher == "session" else 0} - {0, None}
        ours = {self.processes[pid].session for pid in known} & sessions
        known |= {
            process.pid
            for process in self.processes.values()
            if process.session in ours and identity.allows(process)
        }
        known = self._with_descendants(known, identity)
        leader = identity.leader or (files.pid, files.ticks)
        members = [self.processes[pid] for pid in known if not self.processes[pid].gone]
        return sorted(members, key=lambda process: ((process.pid, process.ticks) != leader, process.pid))

    def _with_descendants(self, known: set[int], identity: Identity) -> set[int]:
        while True:
            more = {
                process.pid
                for process in self.processes.values()
                if process.pid not in known and process.parent in known and identity.allows(process)
            }
            if not more:
                return known
            known = known | more

    def leader(self, identity: Identity) -> Process | None:
        """The start's vLLM process itself (not its wrapper), if it lives."""
        files = self.files_of(identity)
        pair = identity.leader or (files.pid, files.ticks)
        for process in self.members(identity):
            if (process.pid, process.ticks) == pair:
                return process
        return None

    def markers(self) -> set[str]:
        """Every marker that a live process carries."""
        return {process.marker for process in self.processes.values() if process.marker and not process.gone}


def scan_input(identities: Iterable[Identity]) -> bytes:
    """The lines that scan.sh reads."""
    lines = []
    for one in identities:
        pairs = set(one.records) | ({one.leader} if one.leader else set())
        pids = ",".join(str(pid) for pid, _ticks in sorted(pairs)) or "-"
        words = [one.marker, one.unit or "-", str(one.session or "-"), pids, one.directory or "-"]
        lines.append("\t".join(words) + "\n")
    return "".join(lines).encode()


def parse_scan(text: str) -> Scan:
    lines = text.splitlines()
    if not lines or lines[-1] != "end" or not lines[0].startswith("boot\t"):
        raise ScanIncomplete(text[-200:])
    scan = Scan(boot_id=lines[0].split("\t")[1])
    for line in lines[1:-1]:
        kind, *rest = line.split("\t")
        if kind == "start":
            size = rest[1]
            scan.files[rest[0]] = Files(present=size != "-", log_size=int(size) if size.isdigit() else 0)
        elif kind == "file":
            key, _eq, value = rest[1].partition("=")
            _set_file(scan.files[rest[0]], key, value)
        elif kind == "proc":
            pid, parent, session, ticks, state, rss, marker, unit, name = rest
            scan.processes[int(pid)] = Process(
                pid=int(pid),
                parent=int(parent),
                session=int(session),
                ticks=int(ticks),
                state=state,
                rss=int(rss),
                marker="" if marker == "-" else marker,
                unit="" if unit == "-" else unit,
                name=name,
            )
    return scan


def _set_file(files: Files, key: str, value: str) -> None:
    names = {"pid": "pid", "ticks": "ticks", "wrapper": "wrapper", "wrapper_ticks": "wrapper_ticks"}
    if key == "boot":
        files.boot_id = value
    elif key == "launcher":
        files.launcher = value
    elif key == "exit" and value.isdigit():
        files.exit_status = int(value)
    elif key in names and value.isdigit():
        setattr(files, names[key], int(value))
