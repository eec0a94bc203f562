"""``manage.py up`` as a person runs it: a process with its own home and ports."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kvadmin.env import BASE_DIR
from kvadmin.up import leftovers, postgres, proc, status
from kvadmin.up.places import PostgresPlace, postgres_place

READY = "Ctrl-C stops it"
#: a start on a busy machine with two cores
START_S = 240


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _n in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Up:
    """One home and its ports; ``start`` may be called again after an end."""

    def __init__(self, home: Path, *, prefix: list[str] | None = None, **environment: str):
        """``prefix`` comes before the command: setpriv, to be another user."""
        self.home = home
        self.prefix = prefix or []
        self.port, self.gateway_port = free_ports(2)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("KVADMIN_") and name not in {"DATABASE_URL", "VALKEY_URL"}
        }
        self.environment = {
            **inherited,
            "KVADMIN_HOME": str(home),
            "KVADMIN_PORT": str(self.port),
            "KVADMIN_GATEWAY_PORT": str(self.gateway_port),
            **environment,
        }
        self.process: subprocess.Popen[str] | None = None
        self.output = home.parent / f"{home.name}.out"

    @property
    def console_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self.gateway_port}"

    @property
    def place(self) -> PostgresPlace:
        return postgres_place(self.home)

    def start(self) -> None:
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, str(BASE_DIR / "manage.py"), "up"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                env=self.environment,
                cwd="/",
                start_new_session=True,
            )

    def said(self) -> str:
        return self.output.read_text()

    def wait_ready(self) -> str:
        assert self.process
        self.wait(lambda: READY in self.said() or self.process.poll() is not None, START_S)
        assert READY in self.said(), self.explain()
        return self.said()

    def refused(self) -> str:
        """What it said when it did not start."""
        self.start()
        assert self.process.wait(60) == 1, self.explain()
        return self.said()

    def explain(self) -> str:
        logs = "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in (self.home / "log").glob("*"))
        return f"{self.said()}\n{logs}"

    def wait(self, condition: Callable[[], object], seconds: float = 40) -> None:
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, f"not within {seconds} s:\n{self.explain()}"
            time.sleep(0.1)

    def status(self) -> dict[str, status.ProcessStatus]:
        found = status.read(self.home)
        return {item.name: item for item in found.processes} if found else {}

    def processes(self) -> list[proc.Identity]:
        """Everything that runs for this home: known by its environment, and PostgreSQL by its data."""
        mine = [pid for pid in proc.every_pid() if proc.environ(pid).get("KVADMIN_HOME") == str(self.home)]
        server = postgres.running(self.place)
        found = [who for who in map(proc.identity, mine) if who]
        return found + ([server] if server else [])

    def ready(self) -> dict:
        return json.loads(get(f"{self.console_url}/readyz")[1])

    def password(self) -> str:
        return re.search(r"with the password (\S+)", self.said())[1]

    def interrupt(self) -> int:
        """Ctrl-C; the exit status."""
        assert self.process
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def clean(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        last = status.read(self.home)
        if last:
            leftovers.end(leftovers.find(last), 3)
        server = postgres.running(self.place)
        if server:
            proc.end(server, signal.SIGQUIT)
        if self.place.owner:
            shutil.rmtree(self.place.base, ignore_errors=True)


@contextmanager
def running(home: Path, **options: object) -> Iterator[Up]:
    one = Up(home, **options)
    try:
        yield one
    finally:
        one.clean()
