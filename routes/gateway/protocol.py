"""The server side of one connection: requests in, one after another, everything bounded.

States: idle, head, body, busy, lingering, closed. docs/gateway.md has the table of them, with what each waits
for and how long.

A caller that goes, or shuts its side, ends its exchange in any state.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque

import httptools
import structlog

from routes.gateway.faults import Fault
from routes.gateway.repeats import LONGEST, PATIENCE, Repeat
from routes.gateway.request import Exchange, Request, Serving, bad

MAX_URL = 8 << 10
MAX_HEADERS = 32 << 10
MAX_HEADER_COUNT = 128
MAX_BODY = 32 << 20
#: bodies of all requests that a worker holds at once
MAX_BODIES = 768 << 20
#: bytes of further requests that are taken while one is answered
AHEAD = 64 << 10
AHEAD_COUNT = 64
HEAD_S = 30.0
BODY_IDLE_S = 30.0
BODY_TOTAL_S = 600.0
IDLE_S = 75.0
STUCK_S = 60.0
LINGER_S = 5.0
LINGER_BYTES = 64 << 20
HIGH_WATER = 64 << 10
#: a body larger than this is taken only of a caller who may call
UNKNOWN_BODY = 64 << 10

#: the kernel's CLOSE and CLOSE_WAIT: the other side has shut down
GONE = frozenset({7, 8})
#: headers that must not come twice
SINGLE = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"content-type", b"content-encoding", b"authorization"}
)
#: what a name, an address and a port are written with
IN_HOST = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:[]%!$&'()*+,;="
METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})

logger = structlog.get_logger("routes.gateway")


class ServerProtocol(asyncio.Protocol):
    __slots__ = (
        "ahead",
        "ahead_bytes",
        "alone",
        "app",
        "body",
        "body_began",
        "body_bytes",
        "broken",
        "buffered",
        "current",
        "deadline",
        "failed",
        "fed",
        "head_bytes",
        "headers",
        "held",
        "in_body",
        "lingered",
        "lingering",
        "loop",
        "owes_continue",
        "parser",
        "paused",
        "peer",
        "repeat",
        "repeated",
        "request",
        "slow",
        "transport",
        "trickle",
        "unlike",
        "upgrading",
    )

    def __init__(self, app: Serving):
        self.app = app
        self.parser = httptools.HttpRequestParser(self)
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        #: the exchange that answers now, and requests that wait behind it
        self.current: Exchange | None = None
        self.ahead: deque[Request] = deque()
        self.ahead_bytes = 0
        self.request: Request | None = None
        self.failed: Fault | None = None
        #: the last request's head and that request, for the next one with the same; what is being fed, if it
        #: begins a request; how often in a row a head was unlike the one before
        self.repeat: Repeat | None = None
        self.repeated: Request | None = None
        self.fed: bytes | None = None
        #: a repeated head whose body is still to come
        self.alone = b""
        self.unlike = 0
        #: a request that asked for another protocol, on its way through the parser once more
        self.upgrading: Request | None = None
        self.body: list[bytes] = []
        self.headers: dict[bytes, bytes] = {}
        self.head_bytes = self.body_bytes = self.trickle = 0
        self.lingered = self.buffered = self.held = 0
        self.in_body = self.lingering = self.slow = self.paused = self.broken = False
        self.owes_continue = False
        self.deadline = self.body_began = 0.0

    # what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.transport.set_write_buffer_limits(HIGH_WATER)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        self.app.connections.add(self)
        self.app.sweeper.members.add(self)
        self.deadline = self.app.sweeper.now + HEAD_S

    def connection_lost(self, exc: Exception | None) -> None:
        self.app.connections.discard(self)
        self.app.sweeper.members.discard(self)
        self.transport = None
        # each holds the other, and only the collector of garbage would part them
        self.parser = None
        self.ahead.clear()
        self._let_go()
        current, self.current = self.current, None
        if current is not None:
            current.caller_gone()

    def eof_received(self) -> bool:
        # no answer is wanted by a caller that has shut its side: the transport closes
        return False

    def data_received(self, data: bytes) -> None:
        if self.lingering:
            self._drop(len(data))
            return
        if self.broken:
            return
        if self.current is not None:
            self.ahead_bytes += len(data)
        elif self.request is None and (self.alone or not self.head_bytes):
            if self.alone:
                # clients that send head and body apart: they are looked at together
                data, self.alone, self.head_bytes = self.alone + data, b"", 0
            elif self.repeat is not None and self.repeat.is_alone(data) and not self.app.draining:
                self.alone, self.head_bytes = data, len(data)
                self.deadline = self.app.sweeper.now + HEAD_S
                return
            if self._again(data):
                return
            self.deadline = self.app.sweeper.now + HEAD_S
            self.fed = data
        elif self.fed is not None:
            self.fed = self.fed + data if len(data) <= UNKNOWN_BODY else None
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        if self.in_body:
            self.trickle += len(data)
            self.deadline = min(self.app.sweeper.now + BODY_IDLE_S, self.body_began + BODY_TOTAL_S)
        else:
            self.head_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError:
            if self.failed is None:
                raise
            self._refuse(self.failed)
        except httptools.HttpParserError:
            self._refuse(bad("This is not a valid HTTP request."))
        else:
            if not self.in_body and self.request is not None and self.head_bytes > MAX_HEADERS + MAX_URL:
                self._refuse(_headers_too_large())
            elif self.in_body and self.trickle > (64 << 10) + 16 * self.body_bytes:
                self._refuse(bad("The chunks of the body carry far more around them than within."))
        if self.fed is not None and (self.request is None or len(self.fed) > LONGEST or not self.in_body):
            # what was fed is kept only as far as a head whose body is still to come
            self.fed = None
        if self.current is not None and self.ahead_bytes > AHEAD:
            self._pause()

    def _again(self, data: bytes) -> bool:
        """Begin a request whose head is the last one's. The parser, between two messages, need not see it."""
        if self.repeat is None or self.ahead or self.slow:
            return False
        body = self.repeat.body_of(data)
        app = self.app
        if body is None or len(body) > UNKNOWN_BODY or app.draining or app.body_bytes > MAX_BODIES:
            return False
        self.held += len(body)
        app.body_bytes += len(body)
        self.unlike = 0
        request = self.repeated
        request.body = body
        self._start(request)
        return True

    def _learn(self, request: Request) -> None:
        """Remember a head that the next request may repeat."""
        fed, self.fed = self.fed, None
        if fed is None or self.unlike > PATIENCE or request.method != b"POST" or not request.keep:
            return
        headers = request.headers
        if b"content-encoding" in headers or b"expect" in headers:
            return
        self.unlike += 1
        self.repeat = Repeat.of(fed, len(request.body))
        self.repeated = request if self.repeat is not None else None

    def _feed(self, data: bytes | memoryview) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as stopped:
                data = memoryview(data)[stopped.args[0] :]
            # The wish for another protocol is not granted, which HTTP allows. But the parser has left out the
            # body then (Java's client asks for HTTP/2 with every POST), so it starts again without that wish.
            request, self.upgrading = self.upgrading, None
            if request is None:
                return
            lines = [
                b"%b: %b\r\n" % pair
                for pair in request.headers.items()
                if pair[0] not in {b"upgrade", b"http2-settings", b"expect"}
            ]
            version = b"1.0" if request.http10 else b"1.1"
            self.parser = httptools.HttpRequestParser(self)
            self.parser.feed_data(
                b"%b %b HTTP/%b\r\n%b\r\n" % (request.method, request.target, version, b"".join(lines))
            )

    def pause_writing(self) -> None:
        self.slow = True
        self.deadline = self.app.sweeper.now + STUCK_S
        self.buffered = self.transport.get_write_buffer_size() if self.transport else 0
        if self.current is not None:
            self.current.caller_slow()
        else:
            self._pause()

    def resume_writing(self) -> None:
        self.slow = False
        if self.current is not None:
            self.current.caller_ready()
        else:
            self._next()

    def _pause(self) -> None:
        if self.transport and not self.paused:
            self.paused = True
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self.transport and self.paused:
            self.paused = False
            self.transport.resume_reading()

    def _stop(self, fault: Fault) -> Fault:
        """Keep why a callback stops the parser: what that raises names it only if nothing else is handled."""
        self.failed = fault
        return fault

    # what the parser calls

    def on_message_begin(self) -> None:
        self.headers = {}
        self.request = Request(b"", self.headers)
        self.body = []
        self.body_bytes = self.trickle = 0
        self.in_body = self.owes_continue = False

    def on_url(self, part: bytes) -> None:
        self.request.target += part
        if len(self.request.target) > MAX_URL:
            raise self._stop(bad(f"The address is longer than {MAX_URL} bytes.", "uri_too_long", 414))

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self.headers
        if self.in_body:
            # what follows the body says nothing that matters here
            return
        name = name.lower()
        if name not in headers:
            headers[name] = value
            return
        before = headers[name]
        if name in SINGLE:
            raise self._stop(bad(f"The header {name.decode('latin-1')} is there twice."))
        headers[name] = before + b", " + value
        if len(headers[name]) > MAX_HEADERS:
            raise self._stop(_headers_too_large())

    def on_headers_complete(self) -> None:
        request = self.request
        headers = request.headers = self.headers
        if (
            len(headers) > MAX_HEADER_COUNT
            or sum(map(len, headers)) + sum(map(len, headers.values())) > MAX_HEADERS
        ):
            raise self._stop(_headers_too_large())
        self.headers = {}
        request.method = self.parser.get_method()
        version = self.parser.get_http_version()
        request.http10 = version == "1.0"
        length = headers.get(b"content-length")
        coding = headers.get(b"transfer-encoding")
        if version not in {"1.1", "1.0"}:
            raise self._stop(bad(f"HTTP/{version} is not spoken here; send HTTP/1.1.", "http_version", 505))
        if request.method not in METHODS:
            raise self._stop(bad("The gateway does not know this method.", "method_not_allowed", 405))
        if not request.http10 and b"host" not in headers:
            raise self._stop(bad("The header host is missing."))
        if headers.get(b"host", b"").rstrip(b" \t").translate(None, IN_HOST):
            raise self._stop(bad("The header host is no name and no address."))
        if coding is not None and (
            request.http10 or length is not None or coding.strip().lower() != b"chunked"
        ):
            raise self._stop(
                bad("Of transfer encodings only `chunked` is taken, alone and without a content-length.")
            )
        if length is not None:
            length = length.strip(b" \t")
            if len(length) > 19 or not length.isdigit():
                raise self._stop(bad("The content-length is no number."))
            if int(length) > MAX_BODY:
                raise self._stop(_too_large())
        self.in_body = True
        self.trickle = 0
        self.body_began = self.app.sweeper.now
        self.deadline = self.body_began + BODY_IDLE_S
        if (
            b"expect" in headers
            and headers[b"expect"].strip().lower() == b"100-continue"
            and not request.http10
        ):
            fault = self.app.early(self, request)
            if fault is not None:
                raise self._stop(fault)
            self.owes_continue = True
            self._continue()

    def _continue(self) -> None:
        """Tell a caller that waits for it to send its body, once the answers before it are out."""
        if self.owes_continue and self.current is None and not self.ahead and self.transport:
            self.owes_continue = False
            self.app.outbox.flush()
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _let_go(self) -> None:
        """The bodies that were read here are not needed any more."""
        self.app.body_bytes -= self.held
        self.held = 0
        if self.repeated is not None:
            self.repeated.body = b""

    def on_body(self, part: bytes) -> None:
        size = len(part)
        self.body_bytes += size
        self.held += size
        self.app.body_bytes += size
        if self.body_bytes > MAX_BODY:
            raise self._stop(_too_large())
        if self.body_bytes > UNKNOWN_BODY >= self.body_bytes - len(part):
            fault = self.app.early(self, self.request)
            if fault is not None:
                raise self._stop(fault)
        if self.app.body_bytes > MAX_BODIES:
            raise self._stop(
                Fault(
                    503,
                    "gateway_busy",
                    "The gateway holds as many large requests as it can. Try again in a moment.",
                    retry_after_s=1,
                )
            )
        self.body.append(part)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            self.upgrading = self.request
            return
        request = self.request
        self.request = None
        self.in_body = False
        self.head_bytes = 0
        body = self.body
        request.body = body[0] if len(body) == 1 else b"".join(body)
        self.body = []
        request.keep = self.parser.should_keep_alive() and not request.http10 and not self.app.draining
        # while an answer has not gone out yet, another is not begun: it would not be braked
        if self.current is None and not self.ahead and not self.slow:
            self._learn(request)
            self._start(request)
        elif len(self.ahead) >= AHEAD_COUNT:
            raise self._stop(bad("Too many requests were sent ahead on this connection.", "too_many_ahead"))
        else:
            self.ahead.append(request)

    # what an exchange calls

    def write(self, data: bytes) -> None:
        """A piece of an answer that goes on."""
        if self.transport is not None:
            self.app.outbox.write_now(self.transport, data)

    def write_last(self, data: bytes) -> None:
        """The end of an answer, or all of it."""
        if self.transport is not None:
            self.app.outbox.write(self.transport, data)

    def finished(self, *, keep: bool) -> None:
        """The answer is written. The exchange is over."""
        self.current = None
        if self.transport is None:
            return
        if not keep or self.app.draining:
            self._linger()
            return
        self.ahead_bytes = 0
        if self.ahead:
            # not from within the call that ended the one before: a hundred of them would nest
            asyncio.get_running_loop().call_soon(self._next)
            return
        if self.request is None:
            self._let_go()
            self.deadline = self.app.sweeper.now + IDLE_S
        else:
            self.deadline = self.app.sweeper.now + HEAD_S
            self._continue()
        if not self.slow:
            self._resume()

    def cut(self) -> None:
        """End without a proper end, so that the caller sees that the answer is not whole."""
        self.current = None
        if self.transport is not None:
            self.app.outbox.flush()
            self.transport.abort()

    def _start(self, request: Request) -> None:
        current = self.current = self.app.exchange(self, request)
        try:
            current.begin()
        except Exception as error:  # noqa: BLE001 (whatever it is, the exchange holds limits and has to end)
            current.crashed(error)

    def _next(self) -> None:
        if self.transport is None or self.current is not None or self.lingering or self.slow:
            return
        if self.ahead:
            request = self.ahead.popleft()
            if request.fault is not None:
                self._refuse(request.fault)
            else:
                self._start(request)
        else:
            self._resume()

    def _refuse(self, fault: Fault) -> None:
        """Answer and end the connection, after those requests that came before."""
        request = self.request or Request(b"", {})
        self.broken = True
        if self.current is not None or self.ahead:
            request.fault = fault
            self.ahead.append(request)
            self._pause()
            return
        self.request = None
        if self.transport is not None:
            answer = self.app.refusal(self, request, fault)
            self.app.outbox.flush()
            self.transport.write(answer)
        self._linger()

    def _linger(self) -> None:
        """Close once the caller has had time to read what was sent."""
        transport = self.transport
        self.app.outbox.flush()
        self.lingering = True
        self._let_go()
        self.ahead.clear()
        self.body = []
        if transport is None:
            return
        self.deadline = self.app.sweeper.now + LINGER_S
        if self.in_body or self.broken or self.request is not None or self.paused:
            self._resume()
            if transport.can_write_eof():
                transport.write_eof()
        else:
            transport.close()

    def _drop(self, size: int) -> None:
        self.lingered += size
        if self.lingered > LINGER_BYTES and self.transport:
            self.transport.abort()

    # time

    def sweep(self, now: float) -> None:
        if self.slow:
            self._sweep_slow(now)
        elif self.paused and self._gone_unread():
            self.transport.abort()
        elif self.current is not None or now < self.deadline or self.transport is None:
            return
        elif self.lingering:
            self.transport.abort()
        elif self.request is not None or self.head_bytes:
            if self.alone:
                # who is refused is in its head
                data, self.alone = self.alone, b""
                self._parse(data)
            self._refuse(bad("The request took too long to arrive.", "request_timeout", 408))
        else:
            self.transport.close()

    def _gone_unread(self) -> bool:
        """Whether the caller has closed, while it is not read and its end cannot be met."""
        if self.transport is None:
            return False
        known = self.transport.get_extra_info("socket")
        return known.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in GONE

    def _sweep_slow(self, now: float) -> None:
        left = self.transport.get_write_buffer_size()
        if left < self.buffered:
            self.buffered, self.deadline = left, now + STUCK_S
        elif now >= self.deadline:
            current, self.current = self.current, None
            if current is not None:
                current.caller_stuck()
            self.transport.abort()
        else:
            self.buffered = left

    def end_when_idle(self) -> None:
        """For a drain: a connection between two requests closes now, another after its answer."""
        idle = self.current is None and self.request is None and not self.alone
        if idle and not self.lingering and self.transport:
            self.app.outbox.flush()
            self.transport.close()


def _headers_too_large() -> Fault:
    return bad(f"The headers are longer than {MAX_HEADERS} bytes.", "headers_too_large", 431)


def _too_large() -> Fault:
    return bad(f"The body is larger than {MAX_BODY} bytes.", "body_too_large", 413)
