"""What is looked at before anything starts. Each refusal is a sentence that says what to do."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from kvadmin.env import Environment
from kvadmin.up import proc
from kvadmin.up.problems import CannotRun

NEEDED_BYTES = 256 << 20
NEEDED_INODES = 2000
TCP_LISTEN = "0A"


def writable_home(home: Path) -> None:
    """Make KVADMIN_HOME and try to write there."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        probe = home / f".write-{os.getpid()}"
        try:
            probe.write_bytes(b"x" * 4096)
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise CannotRun(_full(home)) from error
        raise CannotRun(
            f"kvadmin cannot write to {home} ({error.strerror}). Start it as the user who owns that "
            "folder, or set KVADMIN_HOME to a folder it may write to."
        ) from error


def _full(folder: Path) -> str:
    return (
        f"The disk that holds {folder} is full. Free some space there, or set KVADMIN_HOME to a folder on "
        "another disk."
    )


def enough_disk(folder: Path, needed: int = NEEDED_BYTES) -> None:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free < needed:
        raise CannotRun(
            f"Only {free >> 20} MB are free on the disk that holds {folder}, and kvadmin needs "
            f"{needed >> 20} MB there to start. Free some space, or set KVADMIN_HOME to a folder on "
            "another disk."
        )
    if found.f_files and found.f_favail < NEEDED_INODES:
        raise CannotRun(
            f"The disk that holds {folder} can take only {found.f_favail} more files. Remove some, or set "
            "KVADMIN_HOME to a folder on another disk."
        )


def free_port(address: str, port: int, name: str) -> None:
    """Raise CannotRun, which names the variable ``name``, unless the port can be had."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            raise CannotRun(_port_sentence(address, port, name, error)) from error


def _port_sentence(address: str, port: int, name: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = port_holder(port)
        return (
            f"Port {port} is taken by {holder or 'another process'}. Stop that, or set {name} to a free "
            f"port: {name}={port + 10} make run."
        )
    if error.errno == errno.EACCES:
        return f"Port {port} is for root only. Set {name} to a port above 1023."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{address} is no address of this machine. Set KVADMIN_BIND to one of its addresses."
    return f"Port {port} on {address} cannot be listened on ({error.strerror}). Set {name} or KVADMIN_BIND."


def listening_inodes(table: str, port: int) -> set[str]:
    """Socket inodes of a /proc/net/tcp table that listen on the port."""
    inodes = set()
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
            inodes.add(fields[9])
    return inodes


def port_holder(port: int) -> str:
    """ "process 123 (command line)" of who listens on the port; empty if that cannot be seen."""
    inodes: set[str] = set()
    for table in ("net/tcp", "net/tcp6"):
        try:
            inodes |= listening_inodes((proc.PROC / table).read_text(), port)
        except OSError:
            continue
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid in proc.every_pid():
        if wanted & set(proc.open_files(pid)):
            return f"process {pid} ({proc.command_line(pid)[:120]})"
    return ""


def ports(env: Environment) -> None:
    wrong = []
    for port, name in ((env.port, "KVADMIN_PORT"), (env.gateway_port, "KVADMIN_GATEWAY_PORT")):
        try:
            free_port(env.bind, port, name)
        except CannotRun as refused:
            wrong.append(str(refused))
    if wrong:
        raise CannotRun("\n".join(wrong))
