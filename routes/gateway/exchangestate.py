"""What is known of one request while it is decided on, sent and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic, time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from routes.gateway.asked import Asked
from routes.gateway.counts import Counts
from routes.gateway.credentials import Caller
from routes.gateway.faults import Fault
from routes.gateway.paths import Path
from routes.gateway.protocol import ServerProtocol
from routes.gateway.records import RouteRecord
from routes.gateway.request import Request
from routes.gateway.sse import Stream
from routes.gateway.targets import Target
from routes.gateway.upstream import AnswerHead, UpstreamConnection

if TYPE_CHECKING:
    from routes.gateway.app import App

NOWHERE = Path("", "none", counted=False)
NOTHING = Asked("")
FAR = float("inf")
UNLIMITED: Mapping[str, int] = MappingProxyType({})


class State:
    __slots__ = (
        "address",
        "app",
        "asked",
        "attempts",
        "began",
        "begun",
        "caller",
        "connection",
        "counts",
        "drop_continuous",
        "drop_usage",
        "first_at",
        "first_byte_at",
        "grant",
        "head",
        "heard",
        "held_back",
        "id",
        "idle_at",
        "last_fault",
        "last_target",
        "limits",
        "mark",
        "mode",
        "only",
        "out",
        "over",
        "parts",
        "path",
        "probe",
        "prompt_estimate",
        "refreshed",
        "request",
        "rest",
        "route",
        "sent_at",
        "serving",
        "settled",
        "size",
        "status",
        "stream",
        "streamed",
        "target",
        "task",
        "total_at",
        "tried",
        "upstream",
        "visited",
        "wall",
    )
    app: App
    connection: ServerProtocol
    request: Request
    id: str
    wall: float
    began: float

    def __init__(self, app: App, connection: ServerProtocol, request: Request):
        self.app, self.connection, self.request = app, connection, request
        self.wall = wall = time()
        self.began = monotonic()
        self.id = app.ids.new(wall)
        self.path, self.asked, self.address, self.rest = NOWHERE, NOTHING, "", ""
        self.caller: Caller | None = None
        #: route: the one that was asked for; serving: it, or the fallback that took over
        self.route: RouteRecord | None = None
        self.serving: RouteRecord | None = None
        self.grant: Any = None
        self.limits: Mapping[str, int] = UNLIMITED
        self.target: Target | None = None
        self.last_target: Target | None = None
        self.only: Target | None = None
        self.upstream: UpstreamConnection | None = None
        self.task: asyncio.Task[None] | None = None
        #: targets and routes that it went to
        self.tried: tuple[int, ...] = ()
        self.visited: tuple[int, ...] = ()
        self.last_fault: Fault | None = None
        self.attempts = self.mark = self.prompt_estimate = 0
        #: number of the probe of its target's health that it is, 0 if it is none
        self.probe = 0
        self.streamed = self.drop_usage = self.drop_continuous = self.refreshed = False
        #: begun: a byte of the answer has gone to the caller; over: all of it has, or never will
        self.begun = self.settled = self.over = self.heard = self.held_back = False
        self.sent_at = 0.0
        self.total_at = self.idle_at = FAR
        self.forget_answer()

    def forget_answer(self) -> None:
        """Nothing has come of this attempt's answer yet."""
        self.mode: Literal["none", "whole", "pass", "stream"] = "none"
        self.status = self.size = 0
        self.head: AnswerHead | None = None
        #: what is kept of the answer, and what is about to be written
        self.parts: list[bytes] = []
        self.out: list[bytes] = []
        self.stream: Stream | None = None
        self.counts: Counts | None = None
        self.first_at = 0.0
        self.first_byte_at = FAR

    # in exchange.py

    def settle(self, status: int, layer: str = "", code: str = "") -> None:
        raise NotImplementedError

    def refuse(self, fault: Fault) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def try_again_fresh(self) -> bool:
        raise NotImplementedError

    def attempt_failed(self, fault: Fault, reason: str, *, at_once: bool = False) -> None:
        raise NotImplementedError

    def next_or(self, fault: Fault) -> None:
        raise NotImplementedError
