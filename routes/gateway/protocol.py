"""The server side of one connection: requests in, answers out, everything bounded."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from urllib.parse import unquote

import httptools

from routes.gateway.answers import Answer, error, head

MAX_URL = 8 << 10
MAX_HEADERS = 32 << 10
MAX_HEADER_COUNT = 128
MAX_BODY = 32 << 20
HEAD_TIMEOUT_S = 30
IDLE_TIMEOUT_S = 75


class Refuse(Exception):
    """Ends the connection with this answer."""

    def __init__(self, answer: Answer):
        super().__init__(answer.status)
        self.answer = answer


class ServerProtocol(asyncio.Protocol):
    """``respond(method, path)`` gives the answer once a request is whole; bodies are read and dropped."""

    def __init__(self, respond: Callable[[str, str], Answer], connections: set[ServerProtocol]):
        self.respond = respond
        self.connections = connections
        self.parser = httptools.HttpRequestParser(self)
        self.transport: asyncio.Transport | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.busy = self.closing = False
        self.on_message_begin()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.connections.add(self)
        self._wait(HEAD_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        if self.timer:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        if not self.busy:
            self.busy = True
            self._wait(HEAD_TIMEOUT_S)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # already answered as if it had not asked for another protocol, which HTTP allows
            return
        except httptools.HttpParserCallbackError as failed:
            if not isinstance(failed.__context__, Refuse):
                raise
            self._send(failed.__context__.answer, close=True)
        except httptools.HttpParserError:
            self._send(error(400, "This is not a valid HTTP request.", "bad_request"), close=True)

    def pause_writing(self) -> None:
        # a caller that sends requests and reads no answers gets no more read
        if self.transport:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.transport:
            self.transport.resume_reading()

    # what the parser calls

    def on_message_begin(self) -> None:
        self.url = b""
        self.header_bytes = self.header_count = self.body_bytes = 0
        self.expects_continue = False

    def on_url(self, part: bytes) -> None:
        self.url += part
        if len(self.url) > MAX_URL:
            raise Refuse(error(414, f"The address is longer than {MAX_URL} bytes.", "uri_too_long"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self.header_bytes += len(name) + len(value)
        self.header_count += 1
        if self.header_bytes > MAX_HEADERS or self.header_count > MAX_HEADER_COUNT:
            raise Refuse(error(431, f"The headers are longer than {MAX_HEADERS} bytes.", "headers_too_large"))
        if name.lower() == b"content-length" and len(value) < 20 and value.isdigit():
            self._body_limit(int(value))
        if name.lower() == b"expect" and value.lower() == b"100-continue":
            self.expects_continue = True

    def on_headers_complete(self) -> None:
        if self.expects_continue and self.transport:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._wait(IDLE_TIMEOUT_S)

    def on_body(self, part: bytes) -> None:
        self.body_bytes += len(part)
        self._body_limit(self.body_bytes)

    def on_message_complete(self) -> None:
        path = unquote(self.url.partition(b"?")[0].decode("latin-1"), errors="replace")
        method = self.parser.get_method().decode("latin-1")
        close = not self.parser.should_keep_alive() or self.parser.should_upgrade()
        self._send(self.respond(method, path), close=close, head_only=method == "HEAD")
        self.busy = False
        self._wait(IDLE_TIMEOUT_S)

    @staticmethod
    def _body_limit(size: int) -> None:
        if size > MAX_BODY:
            raise Refuse(error(413, f"The body is larger than {MAX_BODY} bytes.", "body_too_large"))

    def _send(self, found: Answer, *, close: bool, head_only: bool = False) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        written = head(found, f"req-{uuid.uuid4().hex}", keep_alive=not close)
        self.transport.write(written if head_only else written + found.body)
        if close:
            self.closing = True
            self.transport.close()

    def _wait(self, seconds: float) -> None:
        """Close unless something happens within ``seconds``."""
        if self.timer:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        if self.busy:
            self._send(error(408, "The request took too long to arrive.", "request_timeout"), close=True)
        elif self.transport:
            self.transport.close()

    def end_when_idle(self) -> None:
        """For a drain: a connection between two requests closes now, another after its answer."""
        if not self.busy and self.transport:
            self.transport.close()
