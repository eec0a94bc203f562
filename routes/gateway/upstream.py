"""The client side: connections to targets, kept open between requests, one answer at a time.

States: idle (in its origin's pool), busy (an answer is awaited), closed; docs/gateway.md has the table.

A taker gets ``connected`` or ``connect_failed``; then ``answer_head``, ``answer_body`` (any number), and
one of ``answer_end`` and ``answer_lost``; ``answer_some`` follows every piece that does not end the answer.
``answer_whole`` stands for all of an answer, and ``answer_chunk`` for a piece that was one chunk.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import Literal, Protocol
from urllib.parse import urlsplit

import httptools
import structlog

from routes.gateway import heads
from routes.gateway.outbox import Outbox
from routes.gateway.packed import Unpacked, unpacking
from routes.gateway.repeats import LONGEST, Repeat
from routes.gateway.sweep import Sweeper

MAX_HEAD = 64 << 10
MAX_HEADERS = 256
MAX_IDLE = 512
#: vLLM's server closes a connection that was idle for 5 s
KEEP_S = 4.0
KEEP_TLS_S = 25.0
BIG_BODY = 64 << 10
TORN = "ended a packed answer before it was complete"
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,6})\r\n")

logger = structlog.get_logger("routes.gateway")


@dataclass(slots=True, frozen=True)
class Failure:
    """Why there is no answer. ``text`` continues "The target …"."""

    kind: Literal["timeout", "unreachable", "untrusted", "cut", "garbled"]
    text: str


@dataclass(slots=True, frozen=True, eq=False)
class AnswerHead:
    """``lines`` are those that go on to the caller."""

    status: int
    headers: dict[bytes, bytes]
    lines: bytes


class Taker(Protocol):
    heard: bool

    def connected(self, connection: UpstreamConnection) -> None: ...
    def connect_failed(self, failure: Failure) -> None: ...
    def answer_whole(self, head: AnswerHead, body: bytes) -> None: ...
    def answer_head(self, head: AnswerHead) -> None: ...
    def answer_body(self, data: bytes) -> None: ...
    def answer_chunk(self, chunk: bytes, start: int, end: int) -> None: ...
    def answer_some(self) -> None: ...
    def answer_end(self) -> None: ...
    def answer_lost(self, failure: Failure) -> None: ...
    def crashed(self, error: BaseException) -> None: ...


class _Garbled(Exception):
    """The answer cannot be taken. The text continues "The target …"."""


class UpstreamConnection(asyncio.Protocol):
    __slots__ = (
        "alone",
        "between",
        "closed",
        "complete",
        "failed",
        "fed",
        "head",
        "head_bytes",
        "headers",
        "idle_since",
        "interim",
        "origin",
        "packed",
        "parser",
        "reused",
        "started",
        "status",
        "taker",
        "transport",
        "until_close",
    )

    def __init__(self, origin: Origin):
        self.origin = origin
        self.parser = httptools.HttpResponseParser(self)
        self.transport: asyncio.Transport | None = None
        self.taker: Taker | None = None
        self.closed = self.reused = False
        self.idle_since = 0.0
        self._clear()

    def _clear(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.head_bytes = 0
        self.status = 0
        #: started: a byte of the answer has come; status is set once its head is whole
        self.started = self.complete = self.interim = self.until_close = False
        #: between two chunks of an answer
        self.between = False
        #: a repeated head whose body is still to come; what was fed of an answer that may be learned
        self.alone = self.fed = b""
        #: why a callback of the parser stopped it (what the parser raises then names it only if
        #: nothing else is being handled)
        self.failed: _Garbled | None = None
        self.head: AnswerHead | None = None
        self.packed: Unpacked | None = None

    def send(self, taker: Taker, head: bytes, body: bytes) -> None:
        self.taker = taker
        if self.started:
            self._clear()
        if len(body) < BIG_BODY:
            self.origin.outbox.write(self.transport, head + body)
        else:
            self.transport.writelines((head, body))

    def abort(self) -> None:
        """Drop the request, so that the engine stops working on it."""
        self.taker = None
        self.closed = True
        if self.transport:
            self.transport.abort()

    def park(self) -> None:
        """Into the pool, unused."""
        self._clear()
        self.idle_since = self.origin.sweeper.now
        self.origin.idle.append(self)

    # what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        taker = self.taker
        if taker is None:
            # nothing was asked: whatever this is, it must not be taken for the next answer
            self.abort()
            return
        try:
            if self.between:
                if self._chunk(taker, data):
                    return
            elif self.alone or not self.started:
                if self.alone:
                    # servers that send head and body apart: they are looked at together
                    data, self.alone = self.alone + data, b""
                elif (repeat := self.origin.repeat) is not None and repeat.is_alone(data):
                    self.alone = data
                    self.started = taker.heard = True
                    return
                if self._again(taker, data):
                    return
                self.fed = data
            elif self.fed:
                self.fed = self.fed + data if len(data) <= BIG_BODY else b""
            self.started = taker.heard = True
            if not self.status:
                self.head_bytes += len(data)
            self._feed(taker, data)
        except Exception as error:  # noqa: BLE001 (whatever it is, the taker holds limits and has to end)
            self.abort()
            taker.crashed(error)

    def _again(self, taker: Taker, data: bytes) -> bool:
        """Take an answer whose head is that of the target's last one, all at once. The parser, between two
        messages, need not see it."""
        origin = self.origin
        repeat = origin.repeat
        if repeat is None or (body := repeat.body_of(data)) is None:
            return False
        self._release()
        taker.answer_whole(origin.repeated, body)
        return True

    def _chunk(self, taker: Taker, data: bytes) -> bool:
        """Take one whole chunk of an answer, as engines send each event of a stream. The parser, between two
        chunks, need not see it."""
        found = _CHUNK.match(data)
        if found is None:
            return False
        start = found.end()
        end = len(data) - 2
        if start + int(found[1], 16) != end or start == end or data[end:] != b"\r\n":
            return False
        taker.heard = True
        taker.answer_chunk(data, start, end)
        return True

    def _learn(self, data: bytes) -> None:
        """Remember the head of a whole answer that came in one piece, for the next ones."""
        size = self.headers.get(b"content-length")
        if self.closed or size is None or b"transfer-encoding" in self.headers or not size.isdigit():
            return
        repeat = Repeat.of(data, int(size))
        if repeat is not None:
            self.origin.repeat, self.origin.repeated = repeat, self.head

    def _feed(self, taker: Taker, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            if self.failed is None:
                raise
            self._broken(str(self.failed))
            return
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.complete:
                self._broken("sent an answer that is not HTTP")
                return
            self.closed = True
        if self.taker is not taker:
            # the taker gave up while it was fed
            return
        if self.complete:
            if self.packed is not None and not self.packed.whole:
                self._broken(TORN)
                return
            if self.status == 200 and self.fed:
                self._learn(self.fed)
            self._release()
            taker.answer_end()
        elif not self.status and self.head_bytes > MAX_HEAD:
            self._broken("sent headers that are too large")
        else:
            if len(self.fed) > LONGEST or b"content-length" not in self.headers:
                # kept only as far as a head whose body is still to come
                self.fed = b""
            taker.answer_some()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.transport = None
        # each holds the other, and only the collector of garbage would part them
        self.parser = None
        taker, self.taker = self.taker, None
        if taker is None:
            return
        if self.status and self.until_close and exc is None and (self.packed is None or self.packed.whole):
            taker.answer_end()
        else:
            taker.answer_lost(Failure("cut", "closed the connection before its answer was complete"))

    def _broken(self, text: str) -> None:
        taker = self.taker
        self.abort()
        if taker is not None:
            taker.answer_lost(Failure("garbled", text))

    def _release(self) -> None:
        self.taker = None
        transport = self.transport
        if transport is None or transport.is_closing():
            self.closed = True
            return
        if self.closed or transport.get_write_buffer_size():
            self.closed = True
            transport.abort()
            return
        self.idle_since = self.origin.sweeper.now
        self.origin.idle.append(self)

    def _garbled(self, text: str) -> _Garbled:
        self.failed = _Garbled(text)
        return self.failed

    # what the parser calls

    def on_message_begin(self) -> None:
        if self.complete:
            # a second answer to one request
            self.closed = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.complete:
            return
        self.head_bytes += len(name) + len(value)
        if self.status:
            if self.head_bytes > 2 * MAX_HEAD:
                raise self._garbled("sent headers that are too large")
            return
        if len(self.headers) >= MAX_HEADERS or self.head_bytes > 2 * MAX_HEAD + (256 << 10):
            raise self._garbled("sent headers that are too large")
        name = name.lower()
        before = self.headers.get(name)
        self.headers[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        status = self.parser.get_status_code()
        if not 100 <= status < 600:
            raise self._garbled("sent an answer that is not HTTP")
        if status < 200:
            self.interim = True
            return
        self.status = status
        headers = self.headers
        self.until_close = (
            b"content-length" not in headers
            and b"transfer-encoding" not in headers
            and status not in (204, 304)
        )
        if b"content-encoding" in headers:
            self._unpack(headers)
        if self.taker is not None:
            self.head = AnswerHead(status, headers, heads.passed_back(headers))
            self.taker.answer_head(self.head)

    def on_chunk_header(self) -> None:
        self.between = False

    def on_chunk_complete(self) -> None:
        self.between = not self.complete and self.packed is None

    def on_body(self, data: bytes) -> None:
        if self.taker is not None and not self.complete:
            if self.packed is not None:
                try:
                    data = self.packed.feed(data)
                except ValueError as error:
                    raise self._garbled(str(error)) from None
            self.taker.answer_body(data)

    def _unpack(self, headers: dict[bytes, bytes]) -> None:
        try:
            self.packed = unpacking(headers.pop(b"content-encoding"))
        except ValueError as error:
            raise self._garbled(str(error)) from None
        if self.packed is not None:
            headers.pop(b"content-length", None)

    def on_message_complete(self) -> None:
        if self.interim:
            self.interim = False
            self.headers = {}
            return
        self.complete = True
        self.between = False
        if not self.parser.should_keep_alive():
            self.closed = True


class Origin:
    """One scheme, host and port, and the connections to it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sweeper: Sweeper,
        outbox: Outbox,
        base_url: str,
        context: ssl.SSLContext | None,
    ):
        parts = urlsplit(base_url)
        self.tls = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if self.tls else 80)
        shown = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = shown if parts.port is None else f"{shown}:{self.port}"
        self.path = parts.path.rstrip("/")
        self.loop, self.sweeper, self.outbox = loop, sweeper, outbox
        self.context = context if self.tls else None
        self.keep_s = KEEP_TLS_S if self.tls else KEEP_S
        self.idle: deque[UpstreamConnection] = deque()
        #: the head of the last whole answer
        self.repeat: Repeat | None = None
        self.repeated: AnswerHead | None = None
        self.connecting: set[asyncio.Task[None]] = set()
        sweeper.members.add(self)

    def acquire(self, taker: Taker, connect_s: float, *, fresh: bool = False) -> asyncio.Task[None] | None:
        """Calls ``taker.connected`` at once with a kept connection, or later with a new one; then the task
        that makes it is returned, for the taker to cancel when it has given up."""
        idle = self.idle
        while idle and not fresh:
            connection = idle.pop()
            if connection.closed or monotonic() - connection.idle_since > self.keep_s + 1:
                connection.abort()
                continue
            connection.reused = True
            taker.connected(connection)
            return None
        task = self.loop.create_task(self._open(taker, connect_s))
        self.connecting.add(task)
        task.add_done_callback(self.connecting.discard)
        return task

    async def _open(self, taker: Taker, connect_s: float) -> None:
        failure = None
        try:
            async with asyncio.timeout(connect_s):
                _, connection = await self.loop.create_connection(
                    lambda: UpstreamConnection(self),
                    self.host,
                    self.port,
                    ssl=self.context,
                    server_hostname=self.host if self.context else None,
                )
        except TimeoutError:
            failure = Failure("timeout", f"did not accept a connection within {connect_s:g} s")
        except ssl.SSLCertVerificationError as error:
            failure = Failure("untrusted", f"has a certificate that is not trusted ({error.verify_message})")
        except (OSError, UnicodeError) as error:
            failure = Failure("unreachable", f"cannot be reached ({getattr(error, 'strerror', '') or error})")
        try:
            if failure:
                taker.connect_failed(failure)
            else:
                taker.connected(connection)
        except Exception as error:  # noqa: BLE001 (as above)
            taker.crashed(error)

    def sweep(self, now: float) -> None:
        idle = self.idle
        while idle and (idle[0].closed or now - idle[0].idle_since > self.keep_s or len(idle) > MAX_IDLE):
            idle.popleft().abort()

    def close(self) -> None:
        self.sweeper.members.discard(self)
        for task in tuple(self.connecting):
            task.cancel()
        while self.idle:
            self.idle.pop().abort()
