from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from django.utils.translation import gettext as _

from engines.actions.cancel_operation import CancelOperation
from engines.actions.drain_engine import DrainEngine
from engines.actions.engine_states import has_callers, refuse, set_desired
from engines.actions.host_ready import refuse_unconfirmed
from engines.choices import DesiredState, EngineState, OperationKind
from engines.launch.ending import GRACE_S
from engines.launch.tries import forget_tries
from engines.models import Engine, Operation
from engines.operations.begin import begin_operation
from kvadmin.actions import Action, Invalid


@dataclass
class StopEngine(Action[Operation]):
    """End an engine and every process of it. ``grace_s`` is how long its requests may still take.

    One that callers reach through a route is drained first, unless ``at_once``. While it is being started
    or drained, that is cancelled and the stop follows: the operation returned is then the one being
    cancelled.
    """

    verb: ClassVar[str] = "engine.stop"
    permission: ClassVar[str] = "engine.operate"

    engine: Engine
    grace_s: int = GRACE_S
    batch: UUID | None = None
    at_once: bool = False

    def subject(self) -> Engine:
        return self.engine

    def check(self) -> None:
        refuse_unconfirmed(self.engine.host)
        if not 0 <= self.grace_s <= 600:
            raise Invalid(_("Give the engine between 0 and 600 seconds."), field="grace_s")
        self.engine.refresh_from_db(fields=["observed"])
        active = self.engine.operations.active()
        if self._cancelled_first() is None:
            at_rest = {EngineState.STOPPED} | ({EngineState.STOPPING} if active.exists() else set())
            refuse(self.engine, unless=tuple(state for state in EngineState if state not in at_rest))

    def _cancelled_first(self) -> Operation | None:
        """A start, or a drain that still waits for requests; one that stops the engine is left to it."""
        kinds = [OperationKind.START, OperationKind.RESTART]
        if EngineState(self.engine.observed) == EngineState.DRAINING:
            kinds.append(OperationKind.DRAIN)
        return self.engine.operations.active().filter(kind__in=kinds).first()

    def execute(self) -> Operation:
        engine = self.engine
        self.before = {"state": engine.observed}
        set_desired(engine, DesiredState.STOPPED)
        if self.actor.user is not None:
            forget_tries(engine)
        first = self._cancelled_first()
        if first is not None:
            # over the parameters in the row: a worker that ticks it right now writes only its scratch
            first.parameters["then_stop"] = {"grace_s": self.grace_s}
            first.save(update_fields=["parameters"])
            return CancelOperation(self.actor, first).run()
        if not self.at_once and has_callers(engine):
            return self._drain()
        operation = begin_operation(
            OperationKind.STOP,
            actor=self.actor,
            host=engine.host,
            engine=engine,
            parameters={"grace_s": self.grace_s},
            batch=self.batch,
        )
        engine.move(
            EngineState.STOPPING,
            only_from=tuple(state for state in EngineState if state != EngineState.STOPPED),
            start=engine.current_start,
            operation=operation,
        )
        self.after = {"state": engine.observed}
        return operation

    def _drain(self) -> Operation:
        operation = DrainEngine(self.actor, self.engine, batch=self.batch).run()
        operation.parameters["grace_s"] = self.grace_s
        operation.save(update_fields=["parameters"])
        self.after = {"state": self.engine.observed}
        return operation
