"""The gateway's data path on a real socket, in the test's own loop, with doubles of what it stands on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import uvloop

from routes import keyformat
from routes.gateway.app import App
from routes.gateway.records import KeyRecord, RouteRecord, Snapshot, TargetRecord, UsageRecord

PEPPER = "pepper-of-the-tests"
TICK_S = 0.02


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run(main: Coroutine[Any, Any, Any], limit_s: float = 60) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(main, limit_s)

    # not from within a handler: whatever is raised there would name its error as what came before
    if not _in_a_loop():
        return uvloop.run(bounded())
    # a browser that is open for other tests keeps a loop in this thread
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: uvloop.run(bounded())).result()


async def until(condition: Any, limit_s: float = 10.0) -> None:
    limit = asyncio.get_running_loop().time() + limit_s
    while not condition():
        assert asyncio.get_running_loop().time() < limit, "it did not come about"
        await asyncio.sleep(0.005)


class Grant:
    granted = True

    def __init__(self, limits: Limits, tokens: int):
        self.limits, self.tokens = limits, tokens
        self.settled: int | None = None
        self.released = 0

    def lines(self) -> bytes:
        return b"x-ratelimit-limit-requests: 100\r\n"

    def settle(self, tokens: int) -> None:
        assert not self.released
        self.settled = tokens

    def end(self, tokens: int) -> None:
        self.settle(tokens)
        self.release()

    def release(self) -> None:
        self.released += 1
        self.limits.open -= 1


@dataclass
class Refusal:
    granted: ClassVar[bool] = False
    code: str = "rate_limit_exceeded"
    message: str = "This key may send 100 requests per minute and has."
    retry_after_s: float = 12.4
    headers: dict[str, str] = field(default_factory=lambda: {"x-ratelimit-remaining-requests": "0"})


class Limits:
    """Grants everything, unless ``refuse``; ``later`` makes it something to wait for."""

    def __init__(self) -> None:
        self.grants: list[Grant] = []
        self.open = 0
        self.refuse: Refusal | None = None
        self.later: float | None = None

    def take(self, key: KeyRecord, tokens: int, now: float) -> Any:
        if self.later is not None:
            return self._later(tokens)
        return self._take(tokens)

    def _take(self, tokens: int) -> Any:
        if self.refuse is not None:
            return self.refuse
        self.open += 1
        self.grants.append(Grant(self, tokens))
        return self.grants[-1]

    async def _later(self, tokens: int) -> Any:
        await asyncio.sleep(self.later or 0)
        return self._take(tokens)


class Rows(list[UsageRecord]):
    """Ledger, meters and access log in one."""

    def __init__(self) -> None:
        super().__init__()
        self.logged: list[UsageRecord] = []
        self.observed: list[UsageRecord] = []

    def record_all(self, rows: Sequence[UsageRecord]) -> None:
        self.extend(rows)

    def observe(self, row: UsageRecord) -> None:
        self.observed.append(row)

    def write(self, row: UsageRecord) -> None:
        self.logged.append(row)

    def page(self) -> bytes:
        return b"# nothing\n"


@dataclass
class Feed:
    snapshot: Snapshot
    state: str = "current"


class Gateway:
    def __init__(self, **options: Any):
        self.options = options
        self.limits, self.rows = Limits(), Rows()
        self.snapshot = Snapshot()
        self.feed = Feed(self.snapshot)
        self.secret = ""
        self.key: KeyRecord | None = None
        self._last_id = 0

    # what it knows

    def add_key(self, **fields: Any) -> str:
        """The key's text; the first one added is used where a test names none."""
        self._last_id += 1
        public, text = keyformat.new_key()
        values = {"team_id": 1, "business_id": 1, "name": "search team", **fields}
        key = KeyRecord(self._last_id, public, keyformat.digest(text, PEPPER), **values)
        self.snapshot.keys[public] = self.snapshot.by_id[key.id] = key
        if not self.secret:
            self.secret, self.key = text, key
        return text

    def add_route(self, name: str, *targets: Any, **fields: Any) -> RouteRecord:
        """``targets`` are base URLs, or dicts of TargetRecord's fields."""
        self._last_id += 1
        route_id = self._last_id
        records = []
        for target in targets:
            given = target if isinstance(target, dict) else {"base_url": target}
            self._last_id += 1
            records.append(
                TargetRecord(**{"id": self._last_id, "route_id": route_id, "model": name, **given})
            )
        route = RouteRecord(route_id, name, targets=tuple(records), **fields)
        for known in (name, *route.aliases):
            self.snapshot.routes[known] = route
        return route

    # life

    async def __aenter__(self) -> Gateway:
        loop = asyncio.get_running_loop()
        self.app = App(
            loop,
            feed=self.feed,
            limits=self.limits,
            ledger=self.rows,
            meters=self.rows,
            access=self.rows,
            pepper=PEPPER,
            sweep_s=TICK_S,
            **self.options,
        )
        if not self.secret:
            self.add_key()
        self.server = await loop.create_server(self.app.protocol, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self.server.close()
        if kind is None:
            await until(lambda: not self.app.exchanges)
            self.check()
        for connection in list(self.app.connections):
            connection.cut()
        self.app.close()

    def check(self) -> None:
        """What holds after every test: each grant was settled and released once, each target is free."""
        assert self.limits.open == 0
        for grant in self.limits.grants:
            assert grant.released == 1
            assert grant.settled is not None
        for target in self.app.targets.all():
            assert target.in_flight == 0
        held = sum(connection.held for connection in self.app.connections)
        assert self.app.body_bytes == held
        ids = [row.request_id for row in self.rows]
        assert len(ids) == len(set(ids))

    # calls

    def head_of(self, path: str, body: bytes, *lines: str, key: str | None = None) -> bytes:
        given = [f"authorization: Bearer {self.secret if key is None else key}", *lines]
        return request("POST", path, body, *given)

    async def chat(self, *lines: str, path: str = "/v1/chat/completions", **fields: Any) -> Reply:
        value = {"model": "qwen3-8b", "messages": [{"role": "user", "content": "hi"}], **fields}
        return await self.send(self.head_of(path, json.dumps(value, ensure_ascii=False).encode(), *lines))

    async def send(self, *pieces: bytes, pause_s: float = 0.0, method: str = "POST") -> Reply:
        async with self.client() as client:
            for piece in pieces:
                client.write(piece)
                if pause_s:
                    await asyncio.sleep(pause_s)
            return await client.reply(method)

    async def get(self, path: str, *lines: str, method: str = "GET") -> Reply:
        given = [f"authorization: Bearer {self.secret}", *lines]
        return await self.send(request(method, path, b"", *given), method=method)

    def client(self) -> Client:
        return Client(self.port)


def request(method: str, path: str, body: bytes = b"", *lines: str) -> bytes:
    """Without ``content-length`` when a line says how the body is framed."""
    given = ["host: gateway", *lines]
    framed = any(line.lower().startswith(("content-length", "transfer-encoding")) for line in lines)
    if (body or method == "POST") and not framed:
        given.append(f"content-length: {len(body)}")
    if body and not any(line.lower().startswith("content-type") for line in lines):
        given.append("content-type: application/json")
    top = "\r\n".join([f"{method} {path} HTTP/1.1", *given]) + "\r\n\r\n"
    return top.encode() + body


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    #: as they came, when the answer was chunked
    chunks: list[bytes] = field(default_factory=list)
    #: whether the answer's end came before the connection's
    complete: bool = True

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        found = []
        for event in self.body.split(b"\n\n"):
            for line in event.split(b"\n"):
                if line.startswith(b"data: "):
                    data = line[6:]
                    found.append(data.decode() if data == b"[DONE]" else json.loads(data))
        return found

    @property
    def text(self) -> str:
        """What the stream says."""
        parts = [
            event["choices"][0]["delta"].get("content", "")
            for event in self.events
            if isinstance(event, dict) and event.get("choices")
        ]
        return "".join(parts)


class Client:
    """One connection of a caller; speaks bytes."""

    def __init__(self, port: int):
        self.port = port

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=64 << 20)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def abort(self) -> None:
        self.writer.transport.abort()

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = await self.reader.readuntil(b"\r\n\r\n")
        line, *rest = raw.decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for part in rest:
            name, colon, value = part.partition(": ")
            if colon:
                assert name.lower() not in headers, f"{name} came twice"
                headers[name.lower()] = value
        return int(line.split()[1]), headers

    async def reply(self, method: str = "POST") -> Reply:
        status, headers = await self.head()
        while status == 100:
            status, headers = await self.head()
        if method == "HEAD" or status == 204:
            return Reply(status, headers, b"")
        if "content-length" in headers:
            return Reply(status, headers, await self.reader.readexactly(int(headers["content-length"])))
        if headers.get("transfer-encoding") == "chunked":
            chunks: list[bytes] = []
            try:
                while True:
                    size = int(await self.reader.readuntil(b"\r\n"), 16)
                    data = (await self.reader.readexactly(size + 2))[:-2]
                    if not size:
                        return Reply(status, headers, b"".join(chunks), chunks)
                    chunks.append(data)
            except (asyncio.IncompleteReadError, ConnectionError):
                return Reply(status, headers, b"".join(chunks), chunks, complete=False)
        return Reply(status, headers, await self.reader.read(-1))

    async def closed(self) -> bool:
        """Whether nothing more comes but the end."""
        with suppress(ConnectionError):
            return await self.reader.read(-1) == b""
        return True
