"""A request as it was read from a caller, and what a connection and the gateway are to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from routes.gateway.faults import Fault
from routes.gateway.outbox import Outbox
from routes.gateway.sweep import Sweeper

if TYPE_CHECKING:
    from routes.gateway.protocol import ServerProtocol
    from routes.gateway.standing import Standing


@dataclass(slots=True)
class Request:
    """``headers`` have names in lower case; a value may have blanks behind it. ``standing`` is what the
    gateway concluded from the head alone."""

    target: bytes
    headers: dict[bytes, bytes]
    method: bytes = b""
    body: bytes = b""
    http10: bool = False
    keep: bool = True
    fault: Fault | None = None
    standing: Standing | None = None


class Exchange(Protocol):
    def begin(self) -> None: ...
    def crashed(self, error: BaseException) -> None: ...
    def caller_gone(self) -> None: ...
    def caller_slow(self) -> None: ...
    def caller_ready(self) -> None: ...
    def caller_stuck(self) -> None: ...


class Serving(Protocol):
    """What a connection needs of the gateway."""

    sweeper: Sweeper
    outbox: Outbox
    connections: set[ServerProtocol]
    draining: bool
    #: of all connections
    body_bytes: int

    def exchange(self, connection: ServerProtocol, request: Request) -> Exchange: ...
    def refusal(self, connection: ServerProtocol, request: Request, fault: Fault) -> bytes: ...
    def early(self, connection: ServerProtocol, request: Request) -> Fault | None:
        """Whether the request is refused before its body is asked for."""


def bad(message: str, code: str = "bad_request", status: int = 400) -> Fault:
    return Fault(status, code, message)
