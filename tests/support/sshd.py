"""A real OpenSSH server on loopback, with its own keys and throw-away users.

As root several users exist (one per kind of login shell); as a plain user the one user is the current
one and signs in by key. ``USERS`` says at collection which there are.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engines.ssh import keys, pool
from engines.ssh.transport import Login

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:" + os.environ.get("PATH", ""))
ROOT = os.geteuid() == 0
PASSWORD = "pa ss'word\"1"
LOCALES = Path(tempfile.gettempdir()) / "kv-test-locales"
_PREFIX = "kvt"

_NOISE = """
echo 'Welcome to the cluster! Today: maintenance'
echo 'warning: quota at 91%' >&2
printf 'no newline at the end'
"""

_GERMAN = ("/usr/share/i18n/locales/de_DE", "/usr/share/locale/de/LC_MESSAGES/coreutils.mo")

#: login shell and what its start-up files print, by kind
_KINDS = {
    "bash": ("/bin/bash", {}),
    "dash": ("/bin/sh", {}),
    "noisy": ("/bin/bash", {".bashrc": _NOISE, ".bash_profile": _NOISE, ".profile": _NOISE}),
    # German needs its locale's source and the tools' translations
    "german": (all(map(os.path.exists, _GERMAN)) and "/bin/bash", {}),
    "csh": (shutil.which("csh"), {".cshrc": 'echo "csh says hello"\n'}),
    "fish": (shutil.which("fish"), {".config/fish/config.fish": 'echo "fish says hello"\n'}),
}

#: kinds of users there are; decided at collection
USERS = [kind for kind, (shell, _files) in _KINDS.items() if shell] if ROOT else ["bash"]


@dataclass
class Users:
    """The throw-away users by kind; all have the same password and the same authorized key."""

    folder: Path
    pair: keys.KeyPair
    names: dict[str, str] = field(default_factory=dict)

    def home(self, kind: str) -> Path:
        return Path(pwd.getpwnam(self.names[kind]).pw_dir)


@dataclass
class Sshd:
    """A running server. ``login`` describes how to sign in; ``host`` makes the row for it."""

    folder: Path
    users: Users
    port: int
    options: list[str]
    file_limit_blocks: int | None = None
    host_key: str = ""
    process: subprocess.Popen[bytes] | None = None

    def login(self, kind: str = "bash", **values: object) -> Login:
        return Login(
            **{
                "name": "test-host",
                "address": "127.0.0.1",
                "port": self.port,
                "username": self.users.names[kind],
                "host_key": self.host_key,
                "private_key": self.users.pair.private,
                **values,
            }
        )

    def host(self, kind: str = "bash", **values: object):
        """A saved Host row that signs in by key."""
        from tests.support.factories import HostFactory

        return HostFactory(
            **{
                "address": "127.0.0.1",
                "port": self.port,
                "username": self.users.names[kind],
                "host_key": self.host_key,
                "private_key": self.users.pair.private,
                "work_dir": "~/.kvadmin",
                **values,
            }
        )

    def start(self) -> None:
        configuration = self.folder / "sshd_config"
        configuration.write_text("\n".join(self._configuration()) + "\n")
        limit = f"trap '' XFSZ; ulimit -f {self.file_limit_blocks}; " if self.file_limit_blocks else ""
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f'{limit}exec "$0" "$@"', SSHD, "-D", "-e", "-f", str(configuration)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "log").open("ab"),
        )
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError("sshd did not start: " + (self.folder / "log").read_text())

    def stop(self) -> None:
        """The listener and every connection go away."""
        if self.process is not None:
            # a stopped listener forks nothing while its children are ended
            os.kill(self.process.pid, signal.SIGSTOP)
            self.cut()
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def swap_host_key(self, kind: str = "ed25519") -> None:
        """The server shows another host key from now on, as after a new installation."""
        self.make_host_key(kind)
        self.restart()

    def make_host_key(self, kind: str = "ed25519") -> None:
        path = self.folder / "host_key"
        path.unlink(missing_ok=True)
        subprocess.run(
            ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(path)], input=b"y\n", check=True
        )
        self.host_key = " ".join(path.with_suffix(".pub").read_text().split()[:2])

    def connections(self) -> list[int]:
        """Process ids of the server's per-connection processes, not of what users run in them."""
        return [pid for pid in descendants(self.process.pid) if _name(pid).startswith("sshd")]

    def cut(self) -> int:
        """Cut every connection as a lost network would: what runs on the host goes on running."""
        pids = self.connections()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Connections stay up and nothing is answered over them."""
        pids = [self.process.pid, *self.connections()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _configuration(self) -> list[str]:
        (self.folder / "banner").write_text("*** Authorised use only ***\nBei Fragen: 4711\n")
        # of two values sshd takes the first
        return [
            *self.options,
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder / 'host_key'}",
            f"PidFile {self.folder / 'pid'}",
            f"AuthorizedKeysFile {self.users.folder / 'authorized_keys'}",
            f"Banner {self.folder / 'banner'}",
            "StrictModes no",
            "UsePAM no",
            "UseDNS no",
            "PrintMotd yes",
            "MaxStartups 100",
            *_locale_options(self.users),
        ]


def make_users(folder: Path) -> Users:
    users = Users(folder, keys.generate("test"))
    (folder / "authorized_keys").write_text(users.pair.public + "\n")
    if not ROOT:
        users.names["bash"] = getpass.getuser()
        return users
    _remove_stale_users()
    for kind in USERS:
        shell, files = _KINDS[kind]
        name = f"{_PREFIX}{os.getpid()}{kind}"
        home = folder / "home" / kind
        _accounts("useradd", "-M", "-N", "-d", str(home), "-s", str(shell), name)
        users.names[kind] = name
        entry = pwd.getpwnam(name)
        home.mkdir(parents=True, mode=0o755)
        for path, text in files.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(text)
        for path in [home, *home.rglob("*")]:
            os.chown(path, entry.pw_uid, entry.pw_gid)
    lines = "".join(f"{name}:{PASSWORD}\n" for name in users.names.values())
    subprocess.run(["chpasswd"], input=lines.encode(), check=True)
    return users


def remove_users(users: Users) -> None:
    if ROOT:
        for name in users.names.values():
            _remove_user(name)


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``, from /proc."""
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rsplit(") ", 1)[1].split()
            below.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, todo = [], [pid]
    while todo:
        todo += (children := below.get(todo.pop(), []))
        found += children
    return found


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _accounts(*command: str) -> None:
    """useradd and userdel lock the account files; another run of the tests may hold the lock."""
    for wait in (0.2, 0.5, 1, 2, 4, 0):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0 or "lock" not in done.stderr:
            break
        time.sleep(wait)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr}")


def _remove_user(name: str) -> None:
    uid = pwd.getpwnam(name).pw_uid
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == uid:
                os.kill(int(path.name), signal.SIGKILL)
    _accounts("userdel", "-f", name)


def _remove_stale_users() -> None:
    """What a killed run left behind."""
    for entry in pwd.getpwall():
        match = re.fullmatch(rf"{_PREFIX}(\d+)[a-z]+", entry.pw_name)
        if match and not Path(f"/proc/{match[1]}").exists():
            with contextlib.suppress(KeyError, RuntimeError):
                _remove_user(entry.pw_name)


def _remove_stale_folders() -> None:
    for path in Path(tempfile.gettempdir()).glob("kv-sshd-*-*"):
        if not Path(f"/proc/{path.name.split('-')[2]}").exists():
            shutil.rmtree(path, ignore_errors=True)


def _locale_options(users: Users) -> list[str]:
    if "german" not in users.names:
        return []
    return [
        f"Match User {users.names['german']}",
        f"SetEnv LOCPATH={LOCALES} LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 LANGUAGE=de",
    ]


def _make_german_locale() -> None:
    """Compiled once for a machine: it takes seconds."""
    if (LOCALES / "de_DE.UTF-8").exists():
        return
    LOCALES.mkdir(mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=LOCALES) as folder:
        made = Path(folder) / "de_DE.UTF-8"
        done = subprocess.run(
            ["localedef", "-i", "de_DE", "-f", "UTF-8", "--no-archive", str(made)], capture_output=True
        )
        # another run of the tests may have been quicker
        with contextlib.suppress(OSError):
            made.rename(LOCALES / made.name)
        if not (LOCALES / made.name).exists():
            raise RuntimeError(f"localedef: {done.stderr.decode()}")


@pytest.fixture(scope="session")
def ssh_users() -> Iterator[Users]:
    _remove_stale_folders()
    folder = Path(tempfile.mkdtemp(prefix=f"kv-sshd-{os.getpid()}-"))
    folder.chmod(0o755)
    if ROOT:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    if "german" in USERS:
        _make_german_locale()
    users = make_users(folder)
    try:
        yield users
    finally:
        remove_users(users)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def start_sshd(ssh_users):
    """Start a server of one's own: ``start_sshd("MaxSessions 1")``; ended with the test run."""
    servers: list[Sshd] = []

    def start(*options: str, host_key: str = "ed25519", file_limit_blocks: int | None = None) -> Sshd:
        folder = ssh_users.folder / f"server-{len(servers)}"
        folder.mkdir(mode=0o755)
        server = Sshd(folder, ssh_users, free_port(), list(options), file_limit_blocks)
        server.make_host_key(host_key)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def _shared_sshd(start_sshd) -> Sshd:
    return start_sshd()


@pytest.fixture
def sshd(_shared_sshd) -> Iterator[Sshd]:
    """The shared server, running, with the host key it began with; connections end with the test."""
    server = _shared_sshd
    kept = {name: (server.folder / name).read_bytes() for name in ("host_key", "host_key.pub")}
    line = server.host_key
    yield server
    pool.POOL.close()
    if server.host_key != line:
        for name, data in kept.items():
            (server.folder / name).write_bytes(data)
        server.host_key = line
        server.restart()
    elif server.process is None or server.process.poll() is not None:
        server.start()


@pytest.fixture
def full_disk(ssh_users, start_sshd) -> Iterator[tuple[Sshd, str]]:
    """(server, folder): files in the folder cannot grow past 64 KiB.

    A small file system where one may be mounted, else a server with a limit on the size of files.
    """
    folder = ssh_users.folder / "small"
    folder.mkdir(exist_ok=True)
    mounted = (
        ROOT
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "kv-small", str(folder)], capture_output=True
        ).returncode
    )
    folder.chmod(0o1777)
    try:
        yield start_sshd() if mounted else start_sshd(file_limit_blocks=128), str(folder)
    finally:
        pool.POOL.close()
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)
