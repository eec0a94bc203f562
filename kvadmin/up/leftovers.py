"""Processes of an earlier run whose supervisor was killed.

They are known by the session that the record names and by the run's marker in their environment. An
engine or a job on this machine has a session of its own and is never among them.
"""

from __future__ import annotations

import signal

from kvadmin.up import postgres, proc
from kvadmin.up.plan import RUN_MARKER
from kvadmin.up.status import UpStatus

#: ended last: the others still use them
SERVERS = {"valkey": signal.SIGTERM, "postgres": postgres.STOP_SIGNAL}


def find(previous: UpStatus) -> dict[str, list[proc.Identity]]:
    """Living processes of that run, by the name of the process they belong to."""
    sessions = {item.pid: item.name for item in previous.processes if item.pid}
    found: dict[str, list[proc.Identity]] = {}
    for pid in proc.every_pid():
        seen = proc.stat(pid)
        if seen is None or seen.session not in sessions:
            continue
        if proc.environ(pid).get(RUN_MARKER) == previous.run:
            found.setdefault(sessions[seen.session], []).append(proc.Identity(pid, seen.ticks))
    return found


def end(found: dict[str, list[proc.Identity]], seconds: float = 10) -> None:
    """End them all: kvadmin's own processes first and together, then the servers they use."""
    _end([who for name, group in found.items() if name not in SERVERS for who in group], {}, seconds)
    for name, number in SERVERS.items():
        _end(found.get(name, []), {who.pid: number for who in found.get(name, [])[:1]}, seconds)


def _end(group: list[proc.Identity], signals: dict[int, int], seconds: float) -> None:
    for who in group:
        proc.signal_if(who, signals.get(who.pid, signal.SIGTERM))
    if not proc.wait_until(lambda: not any(map(proc.alive, group)), seconds):
        for who in group:
            proc.signal_if(who, signal.SIGKILL)
        proc.wait_until(lambda: not any(map(proc.alive, group)), 5)
