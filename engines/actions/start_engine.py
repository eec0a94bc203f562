from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from django.utils.translation import gettext as _

from engines.actions.engine_states import refuse, refuse_unreadable, set_desired
from engines.actions.host_ready import refuse_unconfirmed
from engines.choices import DesiredState, EngineState, OperationKind
from engines.models import Engine, Operation
from engines.operations.begin import begin_operation
from kvadmin.actions import Action, Conflict


@dataclass
class StartEngine(Action[Operation]):
    """Start an engine with its present revision. ``override`` names checks that may fail (see
    engines/launch/checks.py; only safe ones count)."""

    verb: ClassVar[str] = "engine.start"
    permission: ClassVar[str] = "engine.operate"

    engine: Engine
    override: list[str] = field(default_factory=list)
    load_limit_s: int | None = None
    batch: UUID | None = None

    def subject(self) -> Engine:
        return self.engine

    def check(self) -> None:
        engine = self.engine
        refuse_unconfirmed(engine.host)
        if engine.revision_id is None:
            raise Conflict(
                _("%(engine)s has no profile, so kvadmin cannot start it.") % {"engine": engine.name},
                code="revision_missing",
                remedy=_("Choose a profile for it first."),
            )
        if engine.environment_id is None:
            raise Conflict(
                _("%(engine)s has no vLLM environment.") % {"engine": engine.name},
                code="environment_missing",
                remedy=_("Provision vLLM on the host, then choose it for the engine."),
            )
        refuse_unreadable(engine)
        refuse(engine, unless=(EngineState.STOPPED, EngineState.FAILED))

    def execute(self) -> Operation:
        engine = self.engine
        parameters: dict[str, object] = {}
        if self.override:
            parameters["override"] = sorted(set(self.override))
        if self.load_limit_s:
            parameters["load_limit_s"] = self.load_limit_s
        operation = begin_operation(
            OperationKind.START,
            actor=self.actor,
            host=engine.host,
            engine=engine,
            parameters=parameters,
            batch=self.batch,
        )
        self.before = {"state": engine.observed}
        set_desired(engine, DesiredState.RUNNING)
        if not engine.move(
            EngineState.STARTING,
            only_from=(EngineState.STOPPED, EngineState.FAILED),
            operation=operation,
        ):
            refuse(engine, unless=())
        self.after = {"state": engine.observed, "revision": str(engine.revision), **parameters}
        return operation
