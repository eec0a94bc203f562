from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from django.utils.translation import gettext as _

from engines.actions.cancel_operation import CancelOperation
from engines.actions.engine_states import refuse, set_desired
from engines.actions.host_ready import refuse_unconfirmed
from engines.choices import DesiredState, EngineState, OperationKind
from engines.launch.ending import GRACE_S
from engines.models import Engine, Operation
from engines.operations.begin import begin_operation
from kvadmin.actions import Action, Invalid


@dataclass
class StopEngine(Action[Operation]):
    """End an engine and every process of it. ``grace_s`` is how long its requests may still take.

    While it is being started, that is cancelled and the stop follows: the operation returned is then
    the one being cancelled. A drain has to be cancelled first.
    """

    verb: ClassVar[str] = "engine.stop"
    permission: ClassVar[str] = "engine.operate"

    engine: Engine
    grace_s: int = GRACE_S
    batch: UUID | None = None

    def subject(self) -> Engine:
        return self.engine

    def check(self) -> None:
        refuse_unconfirmed(self.engine.host)
        if not 0 <= self.grace_s <= 600:
            raise Invalid(_("Give the engine between 0 and 600 seconds."), field="grace_s")
        active = self.engine.operations.active()
        if self._starting() is None:
            at_rest = {EngineState.STOPPED} | ({EngineState.STOPPING} if active.exists() else set())
            refuse(self.engine, unless=tuple(state for state in EngineState if state not in at_rest))

    def _starting(self) -> Operation | None:
        kinds = [OperationKind.START, OperationKind.RESTART]
        return self.engine.operations.active().filter(kind__in=kinds).first()

    def execute(self) -> Operation:
        engine = self.engine
        self.before = {"state": engine.observed}
        set_desired(engine, DesiredState.STOPPED)
        starting = self._starting()
        if starting is not None:
            return CancelOperation(self.actor, starting).run()
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
