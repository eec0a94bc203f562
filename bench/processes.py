"""What a process and all its children take: processor time and memory, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def _fields(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(path.name))
        if fields is not None:
            parents.setdefault(int(fields[1]), []).append(int(path.name))
    found, queue = [], [pid]
    while queue:
        one = queue.pop()
        found.append(one)
        queue += parents.get(one, [])
    return found


def cpu_s(pids: list[int]) -> float:
    """User and system time in seconds, with that of children that have ended."""
    total = 0
    for pid in pids:
        fields = _fields(pid)
        if fields is not None:
            total += sum(map(int, fields[11:15]))
    return total / TICKS


def memory_mb(pids: list[int]) -> float:
    """Proportional set size: what is shared by several of them counts once."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024


def connections(pids: list[int], port: int) -> list[int]:
    """How many established connections each process has on its side of ``port``."""
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == "01":
            inodes.add(fields[9])
    counts = []
    for pid in pids:
        held = 0
        for path in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(path.readlink())
            except OSError:
                continue
            held += target.startswith("socket:[") and target[8:-1] in inodes
        counts.append(held)
    return counts


def load() -> str:
    """The machine's load, in words."""
    one, five, _fifteen = os.getloadavg()
    return f"load {one:.1f} (1 min) {five:.1f} (5 min) on {os.cpu_count()} processors"
