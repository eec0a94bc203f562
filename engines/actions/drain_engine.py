from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from django.utils.translation import gettext as _

from engines.actions.engine_states import refuse, set_desired
from engines.actions.host_ready import refuse_unconfirmed
from engines.choices import DesiredState, EngineState, OperationKind
from engines.models import Engine, Operation
from engines.operations.begin import begin_operation
from engines.operations.drain import LIMIT_S
from kvadmin.actions import Action, Invalid


@dataclass
class DrainEngine(Action[Operation]):
    """Let an engine finish its requests, at most ``limit_s`` seconds, then stop it."""

    verb: ClassVar[str] = "engine.drain"
    permission: ClassVar[str] = "engine.operate"

    engine: Engine
    limit_s: int = LIMIT_S
    batch: UUID | None = None

    def subject(self) -> Engine:
        return self.engine

    def check(self) -> None:
        refuse_unconfirmed(self.engine.host)
        if not 0 <= self.limit_s <= 86400:
            raise Invalid(_("Give the requests between 0 seconds and a day."), field="limit_s")
        refuse(self.engine, unless=(EngineState.READY,))

    def execute(self) -> Operation:
        engine = self.engine
        self.before = {"state": engine.observed}
        operation = begin_operation(
            OperationKind.DRAIN,
            actor=self.actor,
            host=engine.host,
            engine=engine,
            parameters={"limit_s": self.limit_s},
            batch=self.batch,
        )
        set_desired(engine, DesiredState.STOPPED)
        engine.move(
            EngineState.DRAINING,
            only_from=(EngineState.READY,),
            start=engine.current_start,
            operation=operation,
        )
        self.after = {"state": engine.observed}
        return operation
