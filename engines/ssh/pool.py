"""The connections of this process, kept for a while: one per host and credentials.

Thread-safe. Never shared with a forked child: it starts with an empty pool of its own.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from typing import TYPE_CHECKING

from engines.choices import HostAuth
from engines.ssh import transport
from engines.ssh.errors import HostMisconfigured, HostUnreachable
from engines.ssh.shell import Exchange, ShellSession
from engines.ssh.transport import Connection, Login, NotStarted
from kvadmin.crypto import is_readable
from kvadmin.sentences import gettext as _

if TYPE_CHECKING:
    from engines.models import Host

IDLE_S = 300.0
_SWEEP_S = 30.0


class Pool:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, threading.Lock] = {}
        self._sweeper: threading.Thread | None = None

    def connection(self, login: Login) -> Connection:
        """The living connection for a login, made if there is none; raises a HostError."""
        key = key_of(login)
        with self._lock:
            connecting = self._connecting.setdefault(key, threading.Lock())
        with connecting:
            with self._lock:
                connection = self._connections.get(key)
                if connection is not None and connection.alive:
                    connection.used_at = time.monotonic()
                    return connection
            if connection is not None:
                self.discard(connection)
            connection = transport.connect(login)
            with self._lock:
                self._connections[key] = connection
                if self._sweeper is None:
                    self._sweeper = threading.Thread(target=self._sweep, name="ssh-idle", daemon=True)
                    self._sweeper.start()
            return connection

    def discard(self, connection: Connection) -> None:
        with self._lock:
            for key, kept in list(self._connections.items()):
                if kept is connection:
                    del self._connections[key]
        connection.close()

    def close(self) -> None:
        """Close every connection; those in use fail with HostUnreachable."""
        with self._lock:
            connections = list(self._connections.values())
            self._connections.clear()
            self._connecting.clear()
        for connection in connections:
            connection.close()

    def abandon(self) -> None:
        """In a forked child: forget the parent's connections and leave them alone."""
        for connection in self._connections.values():
            connection.abandon()
        self.__init__()  # type: ignore[misc]

    def _sweep(self) -> None:
        while True:
            time.sleep(_SWEEP_S)
            before = time.monotonic() - IDLE_S
            with self._lock:
                idle = [
                    connection
                    for connection in self._connections.values()
                    if not connection.alive or (connection.used_at < before and not connection.busy)
                ]
            for connection in idle:
                self.discard(connection)


POOL = Pool()
os.register_at_fork(after_in_child=POOL.abandon)


def key_of(login: Login) -> str:
    """Changes with anything that decides where a connection goes and how it was allowed."""
    parts = [
        part
        for hop in login.hops
        for part in (
            hop.name,
            hop.address,
            str(hop.port),
            hop.username,
            hop.host_key,
            hop.private_key,
            hop.passphrase,
            hop.password,
        )
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def login_for(host: Host) -> Login:
    """The login of a host's row, its jump hosts included; raises HostError when they go in a circle."""
    chain = [host]
    while chain[-1].jump_id is not None:
        following = chain[-1].jump
        if following in chain:
            raise HostMisconfigured(
                _("The jump hosts of %(host)s go in a circle: %(chain)s.")
                % {"host": host.name, "chain": " → ".join(hop.name for hop in [*chain, following])},
                remedy=_("Change the jump host of one of them."),
            )
        chain.append(following)
    login: Login | None = None
    for hop in reversed(chain):
        if hop.is_local:
            # this machine as a jump host: connections start here anyway
            continue
        if not is_readable(hop, "private_key", "passphrase", "password"):
            raise HostMisconfigured(
                _("The stored secret of %(host)s cannot be read.") % {"host": hop.name},
                remedy=_("Edit the host and enter it again, or put the old data key back."),
            )
        way = HostAuth(hop.auth)
        login = Login(
            name=hop.name,
            address=hop.address,
            port=hop.port,
            username=hop.username,
            host_key=hop.host_key,
            private_key=hop.private_key if way.by_key else "",
            passphrase=hop.passphrase if way.by_key else "",
            password=hop.password if way.by_password else "",
            jump=login,
        )
    assert login is not None  # noqa: S101 - a local host has a session of its own kind
    return login


class PooledLine:
    """A shell.Line over the pool; a connection found dead before the command was sent is replaced once."""

    def __init__(self, login: Login):
        self._login = login
        self._connection = POOL.connection(login)

    def carry(self, exchange: Exchange) -> None:
        try:
            self._carry(exchange)
        except NotStarted:
            try:
                self._carry(exchange)
            except NotStarted as again:
                raise again.error from again

    def _carry(self, exchange: Exchange) -> None:
        if not self._connection.alive:
            self._connection = POOL.connection(self._login)
        try:
            self._connection.carry(exchange)
        except NotStarted:
            POOL.discard(self._connection)
            raise
        except HostUnreachable:
            if not self._connection.alive:
                POOL.discard(self._connection)
            raise

    def close(self) -> None:
        """The connection stays in the pool."""


def ssh_session(host: Host) -> ShellSession:
    """A session on a host over SSH; raises a HostError."""
    return ShellSession(PooledLine(login_for(host)), host.name)
