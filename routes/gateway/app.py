"""The gateway's data path, joined: one ``App`` for each worker, on one loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol

import orjson
import structlog

from kvadmin.forwarded import Network, client_address, is_trusted, parse_address
from routes.gateway import heads
from routes.gateway.choose import may_serve
from routes.gateway.exchange import OWN_KINDS, Exchange
from routes.gateway.faults import Fault, fault_body
from routes.gateway.health import Health
from routes.gateway.outbox import Outbox
from routes.gateway.paths import Path, find_path
from routes.gateway.protocol import ServerProtocol
from routes.gateway.records import KeyRecord, RouteRecord, Snapshot, TargetRecord, UsageRecord
from routes.gateway.request import Request
from routes.gateway.responses import Responses
from routes.gateway.sweep import Sweeper
from routes.gateway.targets import Target
from routes.gateway.upstream import Origin

PRUNE_S = 30.0

logger = structlog.get_logger("routes.gateway")


class Feed(Protocol):
    """``state``: loading, current, stale or expired."""

    snapshot: Snapshot
    state: str


class Limits(Protocol):
    def take(self, key: KeyRecord, tokens: int, now: float) -> Any: ...


class Ledger(Protocol):
    def record_all(self, rows: Sequence[UsageRecord]) -> None: ...


class Meters(Protocol):
    def observe(self, row: UsageRecord) -> None: ...
    def page(self) -> bytes: ...


class AccessLog(Protocol):
    def write(self, row: UsageRecord) -> None: ...


class Known:
    """A route's targets, and the longest request any of them takes (0 where none says)."""

    __slots__ = ("_only", "longest", "route", "targets")

    def __init__(self, route: RouteRecord, targets: list[Target]):
        self.route, self.targets = route, targets
        self.longest = max((record.max_model_len or 0 for record in route.targets), default=0)
        self._only: dict[str, Target | None] = {}

    def only(self, path: Path) -> Target | None:
        """The route's one target, if it has one and that may serve this path."""
        try:
            return self._only[path.name]
        except KeyError:
            found = self.targets[0] if len(self.targets) == 1 else None
            if found is not None and not may_serve(found.record, path):
                found = None
            self._only[path.name] = found
            return found


class Targets:
    """Every target that a request has gone to, followed as the snapshot changes."""

    def __init__(self, app: App):
        self.app = app
        self._targets: dict[int, Target] = {}
        self._routes: dict[int, Known] = {}
        self._origins: dict[str, Origin] = {}
        self._prune_at = 0.0
        app.sweeper.members.add(self)

    def known(self, route: RouteRecord) -> Known:
        known = self._routes.get(route.id)
        if known is None or known.route is not route:
            known = self._routes[route.id] = Known(route, [self._follow(record) for record in route.targets])
        return known

    def of(self, route: RouteRecord) -> list[Target]:
        return self.known(route).targets

    def serving(self, target_id: int) -> tuple[Target, RouteRecord] | None:
        """A target that a route still has, with that route."""
        for route in self.app.feed.snapshot.routes.values():
            if any(record.id == target_id for record in route.targets):
                return next(one for one in self.of(route) if one.record.id == target_id), route
        return None

    def all(self) -> list[Target]:
        return list(self._targets.values())

    def _follow(self, record: Any) -> Target:
        target = self._targets.get(record.id)
        if target is not None and target.record.base_url == record.base_url:
            if target.record != record:
                target.change(record)
            return target
        target = self._targets[record.id] = Target(
            record, self._origin(record.base_url), self.app.health(record)
        )
        return target

    def _origin(self, base_url: str) -> Origin:
        found = self._origins.get(base_url)
        if found is None:
            app = self.app
            found = self._origins[base_url] = Origin(app.loop, app.sweeper, app.outbox, base_url, app.tls)
        return found

    def sweep(self, now: float) -> None:
        """See to probes; forget what no route has any more."""
        for target in self._targets.values():
            target.health.tend()
        if now < self._prune_at:
            return
        self._prune_at = now + PRUNE_S
        routes = {route.id: route for route in self.app.feed.snapshot.routes.values()}
        used = {record.id for route in routes.values() for record in route.targets}
        for target_id in [known for known, target in self._targets.items() if known not in used]:
            if not self._targets[target_id].in_flight:
                del self._targets[target_id]
        for route_id in [known for known in self._routes if known not in routes]:
            del self._routes[route_id]
        kept = {target.record.base_url for target in self._targets.values()}
        for base_url in [known for known in self._origins if known not in kept]:
            self._origins.pop(base_url).close()


class App:
    """``pepper`` is the installation's; ``proxies`` are those whose X-Forwarded-For counts; ``checks`` says
    how its parts are, for /readyz; ``tls`` is how outside targets are verified. What is made on its own where
    none is given (``responses``, ``health``) is this worker's alone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        feed: Feed,
        limits: Limits,
        ledger: Ledger,
        meters: Meters,
        access: AccessLog,
        pepper: str,
        proxies: Sequence[Network] = (),
        tls: ssl.SSLContext | None = None,
        checks: Callable[[], dict[str, str]] | None = None,
        responses: Responses | None = None,
        health: Callable[[TargetRecord], Health] | None = None,
        sweep_s: float = 0.25,
    ):
        self.loop = loop
        self.feed, self.limits, self.ledger, self.meters, self.access = feed, limits, ledger, meters, access
        self.pepper, self.proxies, self.checks = pepper, proxies, checks
        self.tls = tls or ssl.create_default_context()
        self.sweeper = Sweeper(loop, sweep_s)
        self.outbox = Outbox(loop, ledger)
        self.connections: set[ServerProtocol] = set()
        self.exchanges: set[Exchange] = set()
        self.targets = Targets(self)
        self.responses = responses or Responses()
        self.health = health or (lambda record: Health())
        self.ids = heads.Ids()
        self.exchange = partial(Exchange, self)
        self.draining = False
        self.body_bytes = 0
        #: counts choices, to break ties
        self.turn = 0

    # what a connection needs

    def protocol(self) -> ServerProtocol:
        return ServerProtocol(self)

    def refusal(self, connection: ServerProtocol, request: Request, fault: Fault) -> bytes:
        """The answer to what is no whole request; the connection closes behind it."""
        exchange = Exchange(self, connection, request)
        found = find_path(request.target) if request.target else None
        if found is not None:
            exchange.path = found.path
        body = fault_body(fault, exchange.id, anthropic=exchange.path.anthropic)
        retry = b"" if fault.retry_after_s is None else b"retry-after: %d\r\n" % max(1, fault.retry_after_s)
        request.keep = False
        exchange.address = self.address_of(connection.peer, request.headers)
        if request.method and found is not None and found.path.kind not in OWN_KINDS:
            # whatever it is refused for, it is a request of its key
            exchange.early()
        exchange.settle(fault.status, "caller", fault.code)
        return b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b%b\r\n%b" % (
            heads.status_line(fault.status),
            len(body),
            retry,
            exchange._own_lines(),
            b"" if request.method == b"HEAD" else body,
        )

    def early(self, connection: ServerProtocol, request: Request) -> Fault | None:
        """A request that waits to be told to send its body: refused now where its key or path is."""
        return Exchange(self, connection, request).early()

    def address_of(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The caller's address; through proxies only where they are trusted."""
        if not self.proxies or not is_trusted(parse_address(peer), self.proxies):
            return peer[7:] if peer.startswith("::ffff:") else peer
        return client_address(peer, headers.get(b"x-forwarded-for", b"").decode("latin-1"), self.proxies)

    # pages of its own

    def own_page(self, kind: str) -> tuple[int, bytes, bytes]:
        """(status, body, content type)."""
        if kind == "metrics":
            return 200, self.meters.page(), b"text/plain; version=0.0.4; charset=utf-8"
        if kind == "health":
            return 200, b'{"status":"ok"}', b"application/json"
        state = "draining" if self.draining else self.feed.state
        ready = state in {"current", "stale"}
        shown = {
            "status": "ready" if state == "current" else state,
            "checks": self.checks() if self.checks else {"snapshot": state},
        }
        return 200 if ready else 503, orjson.dumps(shown), b"application/json"

    # what an exchange tells

    def record(self, row: UsageRecord) -> None:
        if row.key_id:
            self.outbox.record(row)
        self.meters.observe(row)
        self.access.write(row)

    def ejected(self, target: Target) -> None:
        logger.warning(
            "a target takes no requests",
            target=target.shown,
            reason=target.health.reason,
            seconds=target.health.pause_s,
        )

    def readmitted(self, target: Target) -> None:
        logger.info("a target takes requests again", target=target.shown)

    # ends

    async def drain(self, limit_s: float) -> None:
        """Answer what has begun and take nothing new; what is left after ``limit_s`` is cut."""
        self.draining = True
        for connection in list(self.connections):
            connection.end_when_idle()
        limit = monotonic() + limit_s
        while self.connections and monotonic() < limit:  # noqa: ASYNC110 (they leave one by one)
            await asyncio.sleep(0.05)
        for connection in list(self.connections):
            connection.cut()
        self.close()

    def close(self) -> None:
        for exchange in list(self.exchanges):
            exchange.caller_gone()
        self.outbox.flush()
        for origin in list(self.targets._origins.values()):
            origin.close()
        self.sweeper.close()
