"""What a kind of operation is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from engines.models import Engine, Host, Operation
    from engines.ssh.session import Session


@dataclass(frozen=True)
class Done:
    """The step is finished. ``finish`` ends the whole operation here, the rest being skipped."""

    detail: str = ""
    skipped: bool = False
    finish: bool = False


@dataclass(frozen=True)
class Again:
    """Not finished: call the step again in ``after`` seconds."""

    after: float
    detail: str = ""
    progress: float | None = None


class StepFailed(Exception):
    """The step cannot succeed: the operation fails with this code, sentence and remedy."""

    def __init__(self, message: str, *, code: str, remedy: str = ""):
        super().__init__(message)
        self.message = message
        self.code = code
        self.remedy = remedy


@dataclass
class Context:
    """What a step gets. ``scratch`` is JSON and is saved after each tick; keep no secret in it."""

    operation: Operation
    connect: Callable[[Host], Session]
    lines: list[str] = field(default_factory=list)

    @property
    def scratch(self) -> dict[str, Any]:
        return self.operation.scratch

    @property
    def parameters(self) -> dict[str, Any]:
        return self.operation.parameters

    @property
    def host(self) -> Host:
        return self.operation.host

    @property
    def engine(self) -> Engine:
        """The engine acted on; an operation on a host alone has none and must not ask."""
        if self.operation.engine is None:
            raise LookupError("this operation has no engine")
        return self.operation.engine

    @cached_property
    def session(self) -> Session:
        """A connection to the host, opened at first use; raises a HostError."""
        return self.connect(self.host)

    def log(self, text: str) -> None:
        """A line for the operation's log; written with the tick."""
        self.lines.append(text)


@dataclass(frozen=True)
class Step:
    """``run`` gets the context and returns Done or Again, or raises StepFailed or a HostError.

    ``label`` is lazily translated. ``limit_s`` bounds the whole step, retries included;
    ``patience_s`` how long a host may be unreachable within it.
    """

    name: str
    label: Any
    run: Callable[[Context], Done | Again]
    limit_s: float = 600
    patience_s: float = 120


class Flow:
    """A kind of operation: its steps, and what follows success, failure and cancellation.

    The hooks run in the transaction that ends the operation, so they only write to the database.
    """

    kind: ClassVar[str]
    steps: ClassVar[list[Step]]
    cancellable: ClassVar[bool] = True

    def succeeded(self, context: Context) -> None:
        """After the last step."""

    def failed(self, context: Context, *, code: str, message: str, remedy: str) -> None:
        """After a step failed; ``code`` is host_unreachable when patience ran out."""

    def cancelled(self, context: Context) -> None:
        """After a person asked to stop it."""


FLOWS: dict[str, Flow] = {}


def register(flow: type[Flow]) -> type[Flow]:
    FLOWS[flow.kind] = flow()
    return flow


def flow_for(kind: str) -> Flow:
    """The flow of an OperationKind; importing the modules registers them."""
    from engines.operations import load

    load.load_flows()
    return FLOWS[kind]
