"""A double of an engine behind the gateway, on a real socket, which can be told to misbehave.

``Upstream(answer)``: ``answer(call)`` is a coroutine that writes whatever it likes to ``call.writer``; the
functions below make the usual ones. Every request that came is in ``calls``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


@dataclass
class Call:
    line: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    reader: asyncio.StreamReader
    #: set once the other side has closed
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    #: how many requests came on this connection before
    earlier: int = 0

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def path(self) -> str:
        return self.line.split()[1]


Answer = Callable[[Call], Awaitable[None]]


class Upstream:
    def __init__(self, answer: Answer | None = None, *, host: str = "127.0.0.1", tls: Any = None):
        self.answer = answer or whole()
        self.host, self.tls = host, tls
        self.calls: list[Call] = []
        self.connections = self.open = 0
        self.port = 0

    async def __aenter__(self) -> Upstream:
        self.server = await asyncio.start_server(
            self._serve, self.host, self.port, ssl=self.tls, limit=64 << 20
        )
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.server.close()
        for call in self.calls:
            call.writer.close()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        earlier = 0
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                line, *rest = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value for name, _, value in (part.partition(": ") for part in rest) if name
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                call = Call(line, headers, body, writer, reader, earlier=earlier)
                self.calls.append(call)
                earlier += 1
                watch = asyncio.create_task(self._watch(call))
                try:
                    await self.answer(call)
                    await writer.drain()
                finally:
                    watch.cancel()
                    with suppress(asyncio.CancelledError):
                        await watch
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            for call in self.calls:
                if call.writer is writer:
                    call.gone.set()
            writer.close()

    async def _watch(self, call: Call) -> None:
        """Notice that the caller has gone, as a server does that waits for its engine."""
        while not call.reader.at_eof() and call.reader.exception() is None:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.01)
        call.gone.set()


def head(status: int = 200, kind: str = "application/json", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"content-type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n").encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def chat(model: str = "qwen3-8b", text: str = "hello", usage: Any = USAGE) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": usage,
    }


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def whole(value: Any = None, status: int = 200, **headers: str) -> Answer:
    """JSON with a content-length. Without ``value`` a chat answer under the model's name that was sent."""

    async def answer(call: Call) -> None:
        given = value
        if given is None:
            given = chat(call.json.get("model", "") if call.body else "")
        body = given if isinstance(given, bytes) else compact(given)
        call.writer.write(head(status, content_length=str(len(body)), **headers) + b"\r\n" + body)

    return answer


def delta(text: str, model: str = "qwen3-8b", **more: Any) -> bytes:
    value = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
        **more,
    }
    return b"data: " + compact(value) + b"\n\n"


def usage_event(model: str = "qwen3-8b", usage: Any = USAGE) -> bytes:
    value = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [],
        "usage": usage,
    }
    return b"data: " + compact(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def stream(*texts: str, pause_s: float = 0.0, then: str = "end", events: list[bytes] | None = None) -> Answer:
    """Server-sent events as vLLM sends them: one chunk each, the usage when it was asked for.

    ``then``: end, cut (the connection goes without an end) or hang.
    """

    async def answer(call: Call) -> None:
        writer, asked = call.writer, call.json
        model = asked["model"]
        options = asked.get("stream_options") or {}
        writer.write(head(kind="text/event-stream; charset=utf-8", transfer_encoding="chunked") + b"\r\n")
        sent = events if events is not None else [delta("", model), *(delta(text, model) for text in texts)]
        for count, event in enumerate(sent):
            if options.get("continuous_usage_stats") and events is None:
                counted = {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count}
                event = delta(["", *texts][count], model, usage=counted)
            writer.write(chunk(event))
            await writer.drain()
            if pause_s:
                await asyncio.sleep(pause_s)
        if then == "cut":
            writer.transport.abort()
            return
        if then == "hang":
            await call.gone.wait()
            writer.close()
            return
        if options.get("include_usage") and events is None:
            writer.write(chunk(usage_event(model)))
        if events is None:
            writer.write(chunk(DONE))
        writer.write(b"0\r\n\r\n")

    return answer


async def silent(call: Call) -> None:
    """Takes the request and says nothing until the caller has gone."""
    await call.gone.wait()
    call.writer.close()


async def cut(call: Call) -> None:
    call.writer.transport.abort()
