from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from django.utils.translation import gettext as _

from engines.actions.engine_states import has_callers, refuse, refuse_unreadable, set_desired
from engines.actions.host_ready import refuse_unconfirmed
from engines.choices import DesiredState, EngineState, OperationKind
from engines.models import Engine, Operation
from engines.operations.begin import begin_operation
from kvadmin.actions import Action, Conflict


@dataclass
class RestartEngine(Action[Operation]):
    """Stop an engine and start it with its present settings, as one operation. One that callers reach
    through a route finishes their requests first.
    """

    verb: ClassVar[str] = "engine.restart"
    permission: ClassVar[str] = "engine.operate"

    engine: Engine
    override: list[str] = field(default_factory=list)
    batch: UUID | None = None

    def subject(self) -> Engine:
        return self.engine

    def check(self) -> None:
        engine = self.engine
        refuse_unconfirmed(engine.host)
        if engine.revision_id is None or engine.environment_id is None:
            raise Conflict(
                _("%(engine)s has no profile or no vLLM environment, so it could not be started again.")
                % {"engine": engine.name},
                code="revision_missing",
                remedy=_("Choose both for it first."),
            )
        refuse_unreadable(engine)
        refuse(engine, unless=(EngineState.READY, EngineState.FAILED))

    def execute(self) -> Operation:
        engine = self.engine
        self.before = {"state": engine.observed}
        drain = has_callers(engine)
        parameters: dict[str, object] = {"drain": True} if drain else {}
        if self.override:
            parameters["override"] = sorted(set(self.override))
        operation = begin_operation(
            OperationKind.RESTART,
            actor=self.actor,
            host=engine.host,
            engine=engine,
            parameters=parameters,
            batch=self.batch,
        )
        set_desired(engine, DesiredState.RUNNING)
        engine.move(
            EngineState.DRAINING if drain else EngineState.STOPPING,
            only_from=(EngineState.READY, EngineState.FAILED),
            start=engine.current_start,
            operation=operation,
        )
        self.after = {"state": engine.observed, "revision": str(engine.revision)}
        return operation
