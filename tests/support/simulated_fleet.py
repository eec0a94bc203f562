"""Many simulated engines in one asyncio process, each on a port of its own.

They answer /metrics with a real vLLM's page, its numbers moved on at every request: counters and buckets
grow, the gauges go up and down. Some behave badly. Light on purpose: raw HTTP over asyncio protocols.

    python -m tests.support.simulated_fleet --engines 1000

prints {"ports": [...]} on its first line and serves until its standard input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

PAGE = Path(__file__).parents[1] / "data" / "metrics" / "vllm-0.25.1-h200.txt"


class Behaviour(StrEnum):
    OK = "ok"
    #: answers after ``slow_s``
    SLOW = "slow"
    #: takes the connection and never answers
    HANGS = "hangs"
    #: closes the connection at once
    DEAD = "dead"
    #: 200 with a page of something else
    HTML = "html"
    #: 500
    ERROR = "error"
    #: 401 without the key
    KEY = "key"


@lru_cache(maxsize=1)
def _pieces() -> list[tuple[str, str, float]]:
    """The page as (text before a number, kind of number, the number in the sample)."""
    pieces, text = [], ""
    for line in PAGE.read_text().splitlines(keepends=True):
        match = re.match(r"((vllm:|process_start)[^ {]*)(\{.*\})? (\S+)\n$", line)
        if match is None or "_created" in match[1] or "_info" in match[1] or "sleep_state" in match[1]:
            text += line
            continue
        kind = {
            "vllm:num_requests_running": "running",
            "vllm:num_requests_waiting": "waiting",
            "vllm:kv_cache_usage_perc": "usage",
            "process_start_time_seconds": "start",
        }.get(match[1], "grows")
        if "waiting_by_reason" in match[1]:
            kind = "waiting" if "capacity" in line else "none"
        pieces.append((text + line[: match.start(4)], kind, float(match[4])))
        text = "\n"
    pieces.append((text, "end", 0.0))
    return pieces


@dataclass
class SimulatedEngine:
    """One engine; tests change its fields while it serves."""

    number: int
    behaviour: Behaviour = Behaviour.OK
    slow_s: float = 10.0
    key: str = "engine-key"
    started: float = field(default_factory=time.time)
    requests: int = 0
    authorizations: list[str] = field(default_factory=list)

    def restart(self) -> None:
        """Counters begin at nothing, as after a restart of the server."""
        self.started = time.time()

    def gauges(self, now: float) -> dict[str, float]:
        usage = 0.5 + 0.48 * math.sin(now / 300 + self.number)
        return {
            "usage": usage,
            "running": float(int(usage * 40)),
            "waiting": float(max(0, int((usage - 0.9) * 100))),
            "start": self.started,
            "none": 0.0,
        }

    def page(self, now: float | None = None) -> str:
        now = time.time() if now is None else now
        gauges = self.gauges(now)
        grown = (now - self.started) / 60
        parts = []
        for text, kind, value in _pieces():
            parts.append(text)
            if kind == "grows":
                parts.append(f"{int(value * grown)}.0")
            elif kind != "end":
                parts.append(repr(gauges[kind]))
        return "".join(parts)


class _Connection(asyncio.Protocol):
    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self.engine.behaviour is Behaviour.DEAD:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self.heard += data
        while b"\r\n\r\n" in self.heard:
            head, self.heard = self.heard.split(b"\r\n\r\n", 1)
            self.answer(head.decode("latin-1"))

    def answer(self, head: str) -> None:
        engine = self.engine
        engine.requests += 1
        sent = re.search(r"^authorization: *(.*)$", head, re.IGNORECASE | re.MULTILINE)
        if sent:
            engine.authorizations.append(sent[1].strip())
        if engine.behaviour is Behaviour.HANGS:
            return
        if engine.behaviour is Behaviour.SLOW:
            asyncio.get_running_loop().call_later(engine.slow_s, self.send, "200 OK", engine.page())
        elif engine.behaviour is Behaviour.HTML:
            self.send("200 OK", "<html><body>It works</body></html>\n", "text/html")
        elif engine.behaviour is Behaviour.ERROR:
            self.send("500 Internal Server Error", "no\n")
        elif engine.behaviour is Behaviour.KEY and f"Bearer {engine.key}" not in engine.authorizations[-1:]:
            self.send("401 Unauthorized", '{"error": "Unauthorized"}\n')
        elif not head.startswith("GET /metrics "):
            self.send("404 Not Found", "not here\n")
        else:
            self.send("200 OK", engine.page())

    def send(self, status: str, body: str, kind: str = "text/plain; version=0.0.4; charset=utf-8") -> None:
        if self.transport.is_closing():
            return
        data = body.encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n"
        self.transport.write(head.encode() + data)


@dataclass
class Fleet:
    """The engines and, by the same order, their ports on 127.0.0.1."""

    engines: list[SimulatedEngine]
    ports: list[int] = field(default_factory=list)

    async def listen(self) -> list[asyncio.Server]:
        loop = asyncio.get_running_loop()
        servers = []
        for engine in self.engines:
            server = await loop.create_server(lambda engine=engine: _Connection(engine), "127.0.0.1", 0)
            servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])
        return servers


@contextmanager
def simulated_fleet(count: int) -> Iterator[Fleet]:
    """A fleet in a thread of this process, for tests."""
    fleet = Fleet([SimulatedEngine(number) for number in range(count)])
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        servers = loop.run_until_complete(fleet.listen())
        ready.set()
        loop.run_forever()
        for server in servers:
            server.close()
        loop.close()

    thread = threading.Thread(target=serve, name="simulated-fleet")
    thread.start()
    try:
        if not ready.wait(10):
            raise RuntimeError("the simulated fleet did not begin to listen")
        yield fleet
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


async def _serve(count: int, slow: int, dead: int) -> None:
    fleet = Fleet([SimulatedEngine(number) for number in range(count)])
    for engine in fleet.engines[:slow]:
        engine.behaviour = Behaviour.SLOW
    for engine in fleet.engines[slow : slow + dead]:
        engine.behaviour = Behaviour.DEAD
    servers = await fleet.listen()
    print(json.dumps({"ports": fleet.ports}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for server in servers:
        server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Simulated engines until standard input ends.")
    parser.add_argument("--engines", type=int, default=1000)
    parser.add_argument("--slow", type=int, default=0)
    parser.add_argument("--dead", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(_serve(options.engines, options.slow, options.dead))
