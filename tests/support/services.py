"""Throw-away PostgreSQL and Valkey for one run of the tests, unless DATABASE_URL names a server.

``begin`` runs before Django reads its settings, and puts where the servers are into the environment;
workers of xdist inherit that and share them. The servers end with this process however it ends.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from kvadmin.services import socket_url
from kvadmin.up import postgres, proc, valkey
from kvadmin.up.places import SYSTEM_USER, PostgresPlace, valkey_socket

PREFIX = "kvadmin-test-"
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass
class Services:
    folder: Path
    place: PostgresPlace
    processes: list[tuple[subprocess.Popen[bytes], int]]
    valkey_password: str = field(default_factory=lambda: secrets.token_urlsafe(16))


_services: Services | None = None


def begin() -> None:
    global _services
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    for name in list(os.environ):
        if name.startswith("KVADMIN_") and not name.startswith("KVADMIN_TEST_"):
            del os.environ[name]
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    me = proc.identity(os.getpid())
    (folder / "pid").write_text(f"{me.pid} {me.ticks}" if me else "")
    home = folder / "home"
    home.mkdir(mode=0o700)
    # WhiteNoise warns of a folder that is not there
    (home / "static").mkdir()
    os.environ["KVADMIN_HOME"] = str(home)
    atexit.register(finish)
    _services = Services(folder, _place(folder), [])
    if not os.environ.get("DATABASE_URL"):
        _start_postgres(_services)
    if not os.environ.get("VALKEY_URL"):
        _start_valkey(_services, home)


def _place(folder: Path) -> PostgresPlace:
    base = folder / "postgres"
    return PostgresPlace(
        base, base / "data", folder / "pg" / "run", SYSTEM_USER if os.geteuid() == 0 else None
    )


def _end_with_me(number: int):
    def set_up() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)

    return set_up


def _start_postgres(services: Services) -> None:
    place = services.place
    if place.owner:
        # made by mkdtemp for root alone; the server's user has to pass through
        services.folder.chmod(0o711)
        place.sockets.parent.mkdir(exist_ok=True)
        place.sockets.parent.chmod(0o711)
    durable = "KVADMIN_TEST_DURABLE" in os.environ
    tools = postgres.prepare(place, durable=False)
    with (services.folder / "postgres.log").open("ab") as log:
        server = subprocess.Popen(
            postgres.command(place, tools, durable=durable),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_end_with_me(postgres.STOP_SIGNAL),
            **postgres.as_owner(place),
        )
    services.processes.append((server, postgres.STOP_SIGNAL))
    if not proc.wait_until(lambda: server.poll() is not None or postgres.answers(place), 30):
        raise RuntimeError("PostgreSQL for the tests did not answer within 30 seconds")
    if server.poll() is not None:
        raise RuntimeError((services.folder / "postgres.log").read_text())
    postgres.ensure_database(place)
    os.environ["DATABASE_URL"] = f"postgresql://postgres@/kvadmin?host={quote(str(place.sockets), safe='/')}"


def _start_valkey(services: Services, home: Path) -> None:
    password = services.valkey_password
    path = valkey_socket(home)
    valkey.prepare(path)
    with (services.folder / "valkey.log").open("ab") as log:
        server = subprocess.Popen(
            valkey.command(),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_end_with_me(valkey.STOP_SIGNAL),
        )
    services.processes.append((server, valkey.STOP_SIGNAL))
    assert server.stdin
    server.stdin.write(valkey.configuration(path, password).encode())
    server.stdin.close()
    if not proc.wait_until(lambda: server.poll() is not None or valkey.answers(path, password), 30):
        raise RuntimeError("Valkey for the tests did not answer within 30 seconds")
    if server.poll() is not None:
        raise RuntimeError((services.folder / "valkey.log").read_text())
    os.environ["VALKEY_URL"] = socket_url(str(path), password)


def kill(name: str) -> None:
    """SIGKILL ``postgres`` or ``valkey``, as when memory is short."""
    assert _services
    for server, _number in _services.processes:
        if name in str(server.args[0]):  # type: ignore[index]
            server.kill()
            server.wait()


def start_again(name: str) -> None:
    """Start what ``kill`` ended, at the same place. From the main thread: it ends with its thread."""
    assert _services
    _services.processes = [one for one in _services.processes if one[0].poll() is None]
    if name == "postgres":
        # processes of the one that was killed see that it is gone, and until then hold its memory
        proc.wait_until(lambda: postgres.running(_services.place) is None, 10)
        postgres.clear_stale(_services.place)
        _start_postgres(_services)
    else:
        _start_valkey(_services, Path(os.environ["KVADMIN_HOME"]))


def finish() -> None:
    """End what ``begin`` started and remove its folder. Safe to call twice, and in a forked child."""
    global _services
    services, _services = _services, None
    if services is None or (services.folder / "pid").read_text().split()[:1] != [str(os.getpid())]:
        return
    for server, number in reversed(services.processes):
        server.send_signal(number)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    shutil.rmtree(services.folder, ignore_errors=True)


def sweep() -> None:
    """Remove what runs that were killed left behind."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            pid, ticks = (folder / "pid").read_text().split()
        except (OSError, ValueError):
            continue
        if proc.alive(proc.Identity(int(pid), int(ticks))):
            continue
        server = postgres.running(_place(folder))
        if server:
            proc.end(server, signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)
