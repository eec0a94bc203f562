"""Where the embedded servers keep their data and their sockets. Nothing here touches the disk, except
to see whether a data folder was already made.

PostgreSQL refuses to run as root. Started as root it therefore runs as ``SYSTEM_USER``, under
``SYSTEM_BASE``, because the checkout and ``KVADMIN_HOME`` may lie where that user cannot go (/root).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

SYSTEM_BASE = Path("/var/lib/kvadmin")
SYSTEM_USER = "kvadmin-postgres"
POSTGRES_SOCKET = ".s.PGSQL.5432"
VALKEY_SOCKET = "valkey.sock"
#: sun_path holds 108 bytes, one of them the closing zero
SOCKET_PATH_BYTES = 107


@dataclass(frozen=True)
class PostgresPlace:
    """``base`` holds the data and, when ``owner`` is a system user, the binaries that user runs."""

    base: Path
    data: Path
    sockets: Path
    owner: str | None


def home_key(home: Path) -> str:
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:12]


def socket_folder(home: Path, name: str, socket: str) -> Path:
    """``home/run/<name>``, or a folder under /tmp when the socket's path would be too long there."""
    folder = home / "run" / name
    if len(os.fsencode(folder / socket)) <= SOCKET_PATH_BYTES:
        return folder
    return Path("/tmp") / f"kvadmin-{os.geteuid()}-{home_key(home)}" / name  # noqa: S108 (owner is checked)


def postgres_place(home: Path) -> PostgresPlace:
    local = home / "postgres" / "data"
    if os.geteuid() == 0 and not (local / "PG_VERSION").exists():
        base = SYSTEM_BASE / home_key(home)
        return PostgresPlace(base, base / "data", base / "run", SYSTEM_USER)
    return PostgresPlace(local.parent, local, socket_folder(home, "pg", POSTGRES_SOCKET), None)


def valkey_socket(home: Path) -> Path:
    return socket_folder(home, "valkey", VALKEY_SOCKET) / VALKEY_SOCKET
