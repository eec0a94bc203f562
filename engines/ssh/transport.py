"""Connections over SSH: the only module that imports paramiko.

``connect`` goes through the chain of jump hosts, checks each one's host key before anything secret is
sent, and signs in with exactly what the host's row has: no agent, no key files, no known_hosts.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import paramiko

from engines.ssh import command, keys
from engines.ssh.errors import (
    CommandTimeout,
    HostError,
    HostKeyChanged,
    HostKeyUnknown,
    HostUnreachable,
)
from engines.ssh.parse import Frame
from engines.ssh.shell import Exchange
from engines.ssh.sign_in import offer, refused, wants_more
from kvadmin.sentences import gettext as _

CONNECT_S = 10.0
NEGOTIATE_S = 15.0
SIGN_IN_S = 20.0
OPEN_CHANNEL_S = 10.0
KEEPALIVE_S = 15
#: unacknowledged data ends a connection after this: a host that vanished is noticed also while idle
DEAD_PEER_S = 30
#: channels in use at once on one connection; sshd's MaxSessions is 10 by default
MOST_CHANNELS = 8
#: waits between tries when sshd turns a connection away unseen (MaxStartups) or a channel (MaxSessions)
_BUSY_WAITS = (0.3, 0.7, 1.5, 3.0)
_CHUNK = 65536

# paramiko logs every dropped connection with a traceback; the HostError raised here says it better
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Login:
    """How to reach and enter one host. ``jump`` is the login of the host in between, if any."""

    name: str
    address: str
    port: int
    username: str
    host_key: str = ""
    private_key: str = ""
    passphrase: str = ""
    password: str = ""
    jump: Login | None = None

    def __repr__(self) -> str:
        return f"Login({self.name!r}, {self.username}@{self.address}:{self.port})"

    @property
    def hops(self) -> list[Login]:
        """From the first host contacted to this one."""
        return [*(self.jump.hops if self.jump else []), self]


class Connection:
    """An authenticated connection to one host; several threads may run commands over it at once."""

    def __init__(self, transports: list[paramiko.Transport], name: str):
        self._transports = transports
        self._slots = threading.BoundedSemaphore(MOST_CHANNELS)
        self._opening = threading.Lock()
        self._in_use = 0
        self.name = name
        self.used_at = time.monotonic()

    @property
    def alive(self) -> bool:
        return all(transport.is_active() for transport in self._transports)

    @property
    def busy(self) -> bool:
        return self._in_use > 0

    def close(self) -> None:
        for transport in reversed(self._transports):
            transport.close()

    def abandon(self) -> None:
        """In a forked child: let go of the descriptors without a word to the host."""
        for transport in self._transports:
            with contextlib.suppress(OSError):
                if isinstance(transport.sock, socket.socket):
                    transport.sock.close()

    def carry(self, exchange: Exchange) -> None:
        """See shell.Line."""
        until = time.monotonic() + exchange.timeout_s
        try:
            with self._channel(until) as channel:
                _talk(channel, exchange, until)
                if not exchange.stdout.ended and not _ended_by_itself(channel):
                    raise cut(self.name)
        except TimeoutError:
            self._end(exchange.stdout.pid or exchange.stderr.pid)
            raise CommandTimeout(
                _("A command on %(host)s did not finish within %(limit)d s and was ended.")
                % {"host": self.name, "limit": exchange.timeout_s},
                remedy=_("The host may be overloaded, or a disk or a GPU driver may hang."),
            ) from None
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise cut(self.name, error) from error
        self.used_at = time.monotonic()

    @contextlib.contextmanager
    def _channel(self, until: float) -> Iterator[paramiko.Channel]:
        """A channel with BOOTSTRAP running in it."""
        if not self._slots.acquire(timeout=max(0.0, until - time.monotonic())):
            raise HostUnreachable(
                _("Too many commands are running on %(host)s at once.") % {"host": self.name},
                remedy=_("Try again in a moment."),
            )
        try:
            with self._opening:
                self._in_use += 1
            channel = self._open(until)
            try:
                channel.settimeout(OPEN_CHANNEL_S)
                try:
                    channel.exec_command(command.BOOTSTRAP)
                except (OSError, EOFError, paramiko.SSHException) as error:
                    raise cut(self.name, error) from error
                yield channel
            finally:
                channel.close()
        finally:
            with self._opening:
                self._in_use -= 1
            self._slots.release()

    def _open(self, until: float) -> paramiko.Channel:
        transport = self._transports[-1]
        for wait in (*_BUSY_WAITS, None):
            left = min(OPEN_CHANNEL_S, max(1.0, until - time.monotonic()))
            try:
                # paramiko keeps one refusal per transport: one opening at a time, or another gets it
                with self._opening:
                    return transport.open_session(timeout=left)
            except paramiko.ChannelException as error:
                # MaxSessions reached: somebody else's channel on this connection will end
                if wait is None or time.monotonic() + wait > until:
                    raise HostUnreachable(
                        _("%(host)s refuses another command on this connection.") % {"host": self.name},
                        remedy=_("Raise MaxSessions in the host's sshd_config, or try again later."),
                    ) from error
                time.sleep(wait)
            except (OSError, EOFError, paramiko.SSHException) as error:
                if not transport.is_active():
                    raise NotStarted(cut(self.name, error)) from error
                self.close()
                raise HostUnreachable(
                    _("%(host)s stopped answering.") % {"host": self.name},
                    remedy=_("Check that the host is on and that the network to it works."),
                ) from error
        raise AssertionError("unreachable")

    def _end(self, pid: int | None) -> None:
        """End a script's process group; closing its channel alone would leave it running."""
        if pid is None:
            return
        frame, other = Frame("end", 100), Frame("end", 100)
        line = command.program(command.END_GROUP, (str(pid),), nonce="end", limit_s=5)
        until = time.monotonic() + 5
        try:
            with self._channel(until) as channel:
                _talk(channel, Exchange(line, frame, other, 5), until)
        except (NotStarted, HostError, OSError, EOFError, TimeoutError, paramiko.SSHException):
            # the script's own deadline on the host does it a little later
            self.close()


class NotStarted(Exception):
    """The connection was found dead before the command was sent: trying it again is safe."""

    def __init__(self, error: HostError):
        super().__init__(str(error))
        self.error = error


def connect(login: Login) -> Connection:
    """Connect through all hops and sign in; raises a HostError."""
    transports: list[paramiko.Transport] = []
    try:
        for hop in login.hops:
            try:
                transports.append(_enter(hop, transports[-1] if transports else None))
            except HostError as error:
                error.hop = hop.name
                raise
    except BaseException:
        for transport in reversed(transports):
            transport.close()
        raise
    return Connection(transports, login.name)


def offered_host_key(login: Login) -> str:
    """The host key ("type base64") that the host shows; nothing is sent to sign in there.

    The jump hosts in between are entered as usual, so their keys have to be pinned.
    """
    jump = connect(login.jump) if login.jump else None
    try:
        transport = _negotiate(login, jump._transports[-1] if jump else None)
        try:
            return _line_of(transport)
        finally:
            transport.close()
    finally:
        if jump:
            jump.close()


def scan_host_key(address: str, port: int = 22, jump: Login | None = None) -> str:
    """The host key an address shows; see offered_host_key."""
    return offered_host_key(Login(name=address, address=address, port=port, username="", jump=jump))


def cut(name: str, error: BaseException | None = None) -> HostUnreachable:
    reason = f" ({type(error).__name__}: {error})" if error is not None and str(error) else ""
    return HostUnreachable(
        _("The connection to %(host)s was cut.%(reason)s") % {"host": name, "reason": reason},
        remedy=_("Nothing was changed on the host by that. kvadmin keeps trying."),
    )


def _enter(login: Login, via: paramiko.Transport | None) -> paramiko.Transport:
    transport = _negotiate(login, via)
    try:
        _check_host_key(transport, login)
        _sign_in(transport, login)
    except BaseException:
        transport.close()
        raise
    transport.set_keepalive(KEEPALIVE_S)
    return transport


def _negotiate(login: Login, via: paramiko.Transport | None) -> paramiko.Transport:
    """A transport whose keys are agreed on; sshd's MaxStartups drops are tried again."""
    for wait in (*_BUSY_WAITS, None):
        sock = _dial(login, via)
        transport = paramiko.Transport(sock)
        transport.banner_timeout = NEGOTIATE_S
        transport.auth_timeout = SIGN_IN_S
        transport.daemon = True
        _prefer_pinned(transport, login.host_key)
        started = time.monotonic()
        try:
            transport.start_client(timeout=NEGOTIATE_S)
            if transport.initial_kex_done:
                return transport
            transport.close()
            raise HostUnreachable(
                _("%(host)s accepted the connection but did not answer within %(limit)d s.")
                % {"host": login.name, "limit": NEGOTIATE_S},
                remedy=_("Check that an SSH server is listening at %(address)s, port %(port)d.")
                % {"address": login.address, "port": login.port},
            )
        except paramiko.IncompatiblePeer as error:
            transport.close()
            raise HostUnreachable(
                _("%(host)s offers no SSH algorithm that is considered safe today.") % {"host": login.name},
                remedy=_("Update the SSH server on the host."),
            ) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            transport.close()
            turned_away = time.monotonic() - started < 5
            if wait is None or not turned_away:
                raise HostUnreachable(
                    _("No SSH server answered at %(address)s, port %(port)d (%(error)s).")
                    % {"address": login.address, "port": login.port, "error": error or type(error).__name__},
                    remedy=_("Check address and port; a busy server may also turn new connections away."),
                ) from error
            time.sleep(wait)
    raise AssertionError("unreachable")


def _dial(login: Login, via: paramiko.Transport | None) -> socket.socket | paramiko.Channel:
    where = {"host": login.name, "address": login.address, "port": login.port}
    if via is not None:
        try:
            return via.open_channel(
                "direct-tcpip", (login.address.strip("[]"), login.port), ("127.0.0.1", 0), timeout=CONNECT_S
            )
        except paramiko.ChannelException as error:
            raise HostUnreachable(
                _("The jump host %(jump)s cannot reach %(address)s, port %(port)d (%(error)s).")
                % {**where, "jump": login.jump.name if login.jump else "", "error": error.text},
                remedy=_("Check the address as seen from the jump host, and AllowTcpForwarding there."),
            ) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise cut(login.jump.name if login.jump else login.name, error) from error
    try:
        sock = socket.create_connection((login.address.strip("[]"), login.port), timeout=CONNECT_S)
    except socket.gaierror as error:
        raise HostUnreachable(
            _("The name %(address)s is not known.") % where,
            remedy=_("Check the spelling, or use the IP address."),
        ) from error
    except TimeoutError as error:
        raise HostUnreachable(
            _("%(address)s, port %(port)d did not answer.") % where,
            remedy=_("Check that the host is on and that no firewall is in between."),
        ) from error
    except ConnectionRefusedError as error:
        raise HostUnreachable(
            _("%(address)s refuses connections on port %(port)d.") % where,
            remedy=_("Check the port, and that the SSH server is running."),
        ) from error
    except OSError as error:
        raise HostUnreachable(
            _("%(address)s cannot be reached: %(error)s.") % {**where, "error": error.strerror or error},
            remedy=_("Check the address and the network between here and the host."),
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_S * 1000)
    return sock


def _prefer_pinned(transport: paramiko.Transport, host_key: str) -> None:
    """Ask for the pinned key's type first, or a host with several keys would seem to have changed."""
    options = transport.get_security_options()
    pinned = host_key.split(" ", 1)[0]
    wanted = {"rsa-sha2-512", "rsa-sha2-256"} if pinned == "ssh-rsa" else {pinned}
    options.key_types = sorted(options.key_types, key=lambda name: name not in wanted)


def _line_of(transport: paramiko.Transport) -> str:
    key = transport.get_remote_server_key()
    return f"{key.get_name()} {key.get_base64()}"


def _check_host_key(transport: paramiko.Transport, login: Login) -> None:
    offered = _line_of(transport)
    pinned = " ".join(login.host_key.split()[:2])
    if not pinned:
        raise HostKeyUnknown(
            _("%(host)s is contacted for the first time. Its host key is %(fingerprint)s.")
            % {"host": login.name, "fingerprint": keys.fingerprint(offered)},
            offered=offered,
            remedy=_("Compare it with the host's own, then confirm it."),
        )
    if offered != pinned:
        raise HostKeyChanged(
            _("%(host)s shows another host key than the one confirmed: %(offered)s instead of %(pinned)s.")
            % {
                "host": login.name,
                "offered": keys.fingerprint(offered),
                "pinned": keys.fingerprint(pinned),
            },
            pinned=pinned,
            offered=offered,
            remedy=_(
                "If the host was installed anew, confirm the new key. If not, somebody may be in between: "
                "nothing is done on this host until then."
            ),
        )


def _sign_in(transport: paramiko.Transport, login: Login) -> None:
    tried: list[str] = []
    try:
        left = offer(transport, login, tried)
    except paramiko.BadAuthenticationType as error:
        raise refused(login, tried, error.allowed_types) from error
    except paramiko.AuthenticationException as error:
        if not transport.is_active() or "imeout" in str(error):
            raise cut(login.name, error) from error
        raise refused(login, tried) from error
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise cut(login.name, error) from error
    if left:
        raise wants_more(login, left)


def _talk(channel: paramiko.Channel, exchange: Exchange, until: float) -> None:
    """Send the payload and feed the frames until both have ended or the channel has."""
    channel.settimeout(0.0)
    rest = memoryview(exchange.payload)
    open_for_writing = True
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    while not exchange.ended:
        while rest:
            try:
                sent = channel.send(rest[:_CHUNK])
            except TimeoutError:
                break
            except OSError:
                # the script closed its input, or the channel is gone: reading tells which
                rest = rest[:0]
                break
            rest = rest[sent:] if sent else rest[:0]
        if not rest and open_for_writing:
            open_for_writing = False
            with contextlib.suppress(OSError, EOFError):
                channel.shutdown_write()
        over = channel.closed or channel.eof_received
        read = _read(channel, exchange)
        if not read and over:
            return
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if not read and not exchange.ended:
            # a send window that opens does not wake the poll
            poll.poll(min(left, 0.02 if rest else 1.0) * 1000)


def _read(channel: paramiko.Channel, exchange: Exchange) -> bool:
    read = False
    while channel.recv_ready():
        exchange.stdout.feed(channel.recv(_CHUNK))
        read = True
    while channel.recv_stderr_ready():
        exchange.stderr.feed(channel.recv_stderr(_CHUNK))
        read = True
    return read


def _ended_by_itself(channel: paramiko.Channel) -> bool:
    """Whether the command's end was reported, rather than the connection lost."""
    channel.status_event.wait(2.0)
    return channel.exit_status != -1 or (channel.transport.is_active() and channel.status_event.is_set())
