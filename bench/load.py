"""A load generator that costs next to nothing: raw bytes on uvloop, one request at a time per connection."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
#: what a test of a proxy takes at most, once its time is over
GRACE_S = 120.0


def request(model: str, key: str, *, stream: bool = False, **fields: object) -> bytes:
    """A chat as the OpenAI SDK sends it."""
    value = {
        "messages": [
            {"role": "system", "content": "You are a patient assistant of a shop. Answer in one sentence."},
            {"role": "user", "content": "When does my parcel come? I ordered it three days ago. " * 3},
        ],
        "model": model,
        "max_tokens": 64,
        **({"stream": True} if stream else {}),
        **fields,
    }
    body = json.dumps(value, separators=(",", ":")).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
        b"User-Agent: OpenAI/Python 2.8.0\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b" % (key.encode(), len(body), body)
    )


@dataclass
class Result:
    """``latencies`` in seconds, of whole answers; ``first_bytes`` of each answer's first byte."""

    answered: int = 0
    events: int = 0
    failed: int = 0
    cut: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    #: what the first answer other than 200 was
    said: str = ""

    def quantile(self, part: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


class Run:
    """One run of load: ``rate`` requests a second in all, or as fast as the answers come."""

    def __init__(self, port: int, data: bytes, connections: int, *, rate: float = 0.0, patient: bool = False):
        self.port, self.data, self.connections = port, data, connections
        self.every_s = connections / rate if rate else 0.0
        #: a connection that was lost is made anew, and the request counted as cut
        self.patient = patient
        self.result = Result()
        self.stopping = False
        self.open = 0
        self.ended = asyncio.Event()

    async def go(self, seconds: float) -> Result:
        loop = asyncio.get_running_loop()
        began = loop.time()
        callers = []
        for number in range(self.connections):
            caller = Caller(self, loop)
            caller.due = began + 0.2 + number * self.every_s / self.connections
            await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", self.port)
            callers.append(caller)
        began = loop.time()
        await asyncio.sleep(seconds)
        self.result.seconds = loop.time() - began
        self.stopping = True
        for caller in callers:
            caller.end_when_idle()
        async with asyncio.timeout(GRACE_S):
            await self.ended.wait()
        return self.result


class Caller(asyncio.Protocol):
    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop):
        self.run, self.loop = run, loop
        self.transport: asyncio.Transport | None = None
        self.buffer = b""
        self.began = self.due = 0.0
        self.busy = self.chunked = self.in_body = False
        self.left = 0
        self.status = 0
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.run.open += 1
        self.busy = False
        self._next()

    def _next(self) -> None:
        run = self.run
        if run.stopping:
            self.transport.close()
            return
        if run.every_s:
            now = self.loop.time()
            while self.due < now - run.every_s:
                self.due += run.every_s
            at, self.due = self.due, self.due + run.every_s
            if at > now:
                self.loop.call_at(at, self._send)
                return
        self._send()

    def _send(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self.run.stopping:
            self.transport.close()
            return
        self.busy, self.in_body, self.buffer, self.tail = True, False, b"", b""
        self.began = time.perf_counter()
        self.transport.write(self.run.data)

    def end_when_idle(self) -> None:
        if not self.busy and self.transport is not None:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if not self.in_body:
            data = self.buffer = self.buffer + data if self.buffer else data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return
            self.status = int(data[9:12])
            found = _LENGTH.search(data, 0, end + 2)
            self.chunked = found is None
            self.left = int(found[1]) if found else 0
            self.in_body = True
            if self.status != 200 and not self.run.result.said:
                self.run.result.said = data[:600].decode("latin-1")
            data = data[end + 4 :]
        if self.chunked:
            self.run.result.events += data.count(b"data: ")
            tail = self.tail = (self.tail + data)[-7:]
            if tail[-5:] == b"0\r\n\r\n" and (len(tail) < 7 or tail[-7:-5] == b"\r\n"):
                self._answered()
        else:
            self.left -= len(data)
            if self.left <= 0:
                self._answered()

    def _answered(self) -> None:
        result = self.run.result
        self.busy = False
        if self.status == 200:
            result.answered += 1
            result.latencies.append(time.perf_counter() - self.began)
        else:
            result.failed += 1
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        run = self.run
        self.transport = None
        run.open -= 1
        if self.busy:
            run.result.cut += 1
            self.busy = False
        if not run.open and run.stopping:
            run.ended.set()
