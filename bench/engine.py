"""A double of an engine that costs next to nothing: raw bytes on uvloop, as vLLM would send them.

    python -m bench.engine NAME...

Serves each NAME as a model on a port of its own; the ports are printed as one line of JSON. A request with
``"stream":true`` gets ``bench_events`` events (64), ``bench_pause_ms`` (5) apart, each in a chunk of its own,
and the usage when it is asked for; any other gets fixed JSON at once. What it has answered is told by
GET /counts.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys

import uvloop

EVENTS = 64
PAUSE_MS = 5
PROMPT, COMPLETION = 57, 64
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_NUMBER = {name: re.compile(rb'"bench_%b": ?(\d+)' % name.encode()) for name in ("events", "pause_ms")}


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _chunk(event: bytes) -> bytes:
    data = b"data: " + event + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


class Model:
    """The bytes that one served name answers with, and what it has answered."""

    def __init__(self, name: str):
        self.name = name
        self.whole_answers = self.streams_begun = self.streams_ended = self.completion_tokens = 0
        usage = {
            "prompt_tokens": PROMPT,
            "total_tokens": PROMPT + COMPLETION,
            "completion_tokens": COMPLETION,
        }
        body = _compact(
            {
                "id": "chatcmpl-0f3a1f2e5b7c4d0e9a8b7c6d5e4f3a2b",
                "object": "chat.completion",
                "created": 1764500000,
                "model": name,
                "choices": [
                    {
                        "index": 0,
                        "message": {
                            "role": "assistant",
                            "content": "The cache holds keys and values of every token. " * 6,
                            "refusal": None,
                            "tool_calls": [],
                            "reasoning": None,
                        },
                        "logprobs": None,
                        "finish_reason": "stop",
                        "stop_reason": None,
                    }
                ],
                "service_tier": None,
                "usage": {**usage, "prompt_tokens_details": None},
                "prompt_logprobs": None,
            }
        )
        self.whole = (
            b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
            b"content-length: %d\r\ncontent-type: application/json\r\n\r\n%b" % (len(body), body)
        )
        self.head = (
            b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
            b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self.event = _chunk(
            _compact(
                {
                    "id": "chatcmpl-0f3a1f2e5b7c4d0e9a8b7c6d5e4f3a2b",
                    "object": "chat.completion.chunk",
                    "created": 1764500000,
                    "model": name,
                    "choices": [
                        {
                            "index": 0,
                            "delta": {"content": " word"},
                            "logprobs": None,
                            "finish_reason": None,
                            "token_ids": None,
                        }
                    ],
                }
            )
        )
        told = {
            "id": "chatcmpl-0f3a1f2e5b7c4d0e9a8b7c6d5e4f3a2b",
            "object": "chat.completion.chunk",
            "created": 1764500000,
            "model": name,
            "choices": [],
        }
        self.told = told
        self.done = _chunk(b"[DONE]") + b"0\r\n\r\n"

    def usage(self, events: int) -> bytes:
        counted = {"prompt_tokens": PROMPT, "total_tokens": PROMPT + events, "completion_tokens": events}
        return _chunk(_compact({**self.told, "usage": counted}))


class Serving(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def __init__(self, model: Model):
        self.model = model
        self.data = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def data_received(self, data: bytes) -> None:
        data = self.data = self.data + data if self.data else data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return
        found = _LENGTH.search(data, 0, end + 2)
        size = end + 4 + (int(found[1]) if found else 0)
        if len(data) < size:
            return
        self.data = data[size:]
        self.answer(data[:size])

    def answer(self, data: bytes) -> None:
        model = self.model
        if data[:4] == b"GET ":
            self.page(data)
        elif b'"stream":true' in data or b'"stream": true' in data:
            model.streams_begun += 1
            events, pause = (_NUMBER[name].search(data) for name in ("events", "pause_ms"))
            self.transport.write(model.head)
            self.next(
                int(events[1]) if events else EVENTS,
                int(events[1]) if events else EVENTS,
                int(pause[1]) / 1000 if pause else PAUSE_MS / 1000,
                b"include_usage" in data,
            )
        else:
            model.whole_answers += 1
            self.transport.write(model.whole)

    def next(self, left: int, events: int, pause_s: float, usage: bool) -> None:
        transport, model = self.transport, self.model
        if transport is None:
            return
        if left:
            transport.write(model.event)
            asyncio.get_running_loop().call_later(pause_s, self.next, left - 1, events, pause_s, usage)
            return
        transport.write((model.usage(events) if usage else b"") + model.done)
        model.streams_ended += 1
        model.completion_tokens += events

    def page(self, data: bytes) -> None:
        model = self.model
        if data.startswith(b"GET /counts"):
            value = {
                "whole": model.whole_answers,
                "streams_begun": model.streams_begun,
                "streams_ended": model.streams_ended,
                "prompt_tokens": PROMPT * (model.whole_answers + model.streams_ended),
                "completion_tokens": COMPLETION * model.whole_answers + model.completion_tokens,
            }
        else:
            value = {
                "object": "list",
                "data": [{"id": model.name, "object": "model", "max_model_len": 32768}],
            }
        body = _compact(value)
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )


async def serve(models: list[tuple[str, int]]) -> None:
    loop = asyncio.get_running_loop()
    ports = []
    for name, port in models:
        model = Model(name)
        listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        await loop.create_server(lambda model=model: Serving(model), sock=listener, backlog=4096)
        ports.append(listener.getsockname()[1])
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    given = [word.partition(":") for word in sys.argv[1:]]
    uvloop.run(serve([(name, int(port or 0)) for name, _, port in given]))


if __name__ == "__main__":
    main()
