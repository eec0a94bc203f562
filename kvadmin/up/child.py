"""One supervised process: its starts, its ends, its log file."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from kvadmin.env import BASE_DIR
from kvadmin.up import backoff, proc
from kvadmin.up.plan import FOR_PREPARATION_ONLY, NAME_MARKER, RUN_MARKER, ProcessSpec
from kvadmin.up.status import RUNNING, STARTING, STOPPED, WAITING, ProcessStatus, now

LOG_BYTES = 10 << 20


def exit_words(returncode: int) -> str:
    """How a process ended, in words."""
    if returncode >= 0:
        return f"ended with status {returncode}"
    try:
        return f"ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"ended by signal {-returncode}"


def last_lines(path: Path, count: int = 5, most: int = 4000) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-count:])


class Child:
    """Starts in a session of its own, so that a Ctrl-C reaches only the supervisor."""

    def __init__(self, spec: ProcessSpec, run: str, home: Path):
        self.spec = spec
        self.run = run
        self.log = home / "log" / f"{spec.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.status = ProcessStatus(spec.name, since=now())
        self.failures = 0
        self.started_at = 0.0
        self.start_at: float | None = None
        self.was_ready = False

    def start(self) -> None:
        options = {"cwd": BASE_DIR, **self.spec.popen}
        environment = options.pop("env", None) or {
            name: value for name, value in os.environ.items() if name not in FOR_PREPARATION_ONLY
        }
        environment = {**environment, RUN_MARKER: self.run, NAME_MARKER: self.spec.name}
        self.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603
                self.spec.command,
                stdin=subprocess.PIPE if self.spec.stdin else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                **options,
            )
        if self.spec.stdin and self.process.stdin:
            with self.process.stdin as pipe:
                pipe.write(self.spec.stdin)
        who = proc.identity(self.process.pid)
        self.started_at, self.start_at = time.monotonic(), None
        self.status = replace(
            self.status, state=STARTING, pid=self.process.pid, ticks=who.ticks if who else None, since=now()
        )

    def mark_running(self) -> None:
        if self.status.state == STARTING:
            self.was_ready = True
            self.status = replace(self.status, state=RUNNING, since=now())

    def ended(self) -> str | None:
        """How it ended since the last look, in words; None while it runs or waits. Plans the next start."""
        if self.process is None or self.start_at is not None:
            return None
        returncode = self.process.poll()
        if returncode is None:
            return None
        # what a dead leader leaves behind would hold its port or run its tasks twice
        self.kill_session()
        self.failures = backoff.failures_after(self.failures, time.monotonic() - self.started_at)
        self.start_at = time.monotonic() + backoff.delay(self.failures)
        words = exit_words(returncode)
        self.status = replace(
            self.status,
            state=WAITING,
            pid=None,
            ticks=None,
            restarts=self.status.restarts + 1,
            since=now(),
            last_exit=words,
        )
        return words

    def due(self) -> bool:
        return self.start_at is not None and time.monotonic() >= self.start_at

    def ask_to_end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(self.spec.stop)

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill_session(self) -> None:
        """SIGKILL to whatever is left of the process's session."""
        if self.process is None:
            return
        for who in proc.session_members(self.process.pid):
            # the session's number can be another's once all of ours are gone
            if proc.environ(who.pid).get(RUN_MARKER) == self.run:
                proc.signal_if(who, signal.SIGKILL)

    def mark_stopped(self) -> None:
        ended = self.process.poll() if self.process else None
        words = exit_words(ended) if ended is not None else self.status.last_exit
        self.status = replace(self.status, state=STOPPED, pid=None, ticks=None, since=now(), last_exit=words)

    def rotate_log(self) -> None:
        """Keep one older file. The process goes on writing at the end of the same one."""
        try:
            if self.log.stat().st_size > LOG_BYTES:
                older = self.log.with_suffix(".log.1")
                older.write_bytes(self.log.read_bytes())
                os.truncate(self.log, 0)
        except OSError:
            return
