from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from django.utils.translation import gettext as _

from engines.actions.drain_engine import DrainEngine
from engines.actions.restart_engine import RestartEngine
from engines.actions.start_engine import StartEngine
from engines.actions.stop_engine import StopEngine
from engines.models import Engine, Operation
from kvadmin.actions import Action, ActionError, Invalid

VERBS = ("start", "stop", "drain", "restart")


@dataclass(frozen=True)
class EngineResult:
    """What became of one engine: an operation, or why there is none. ``engine`` is None for an unknown id."""

    engine_id: int
    engine: Engine | None
    operation: Operation | None = None
    error: ActionError | None = None


@dataclass
class OperateEngines(Action[list[EngineResult]]):
    """Start, stop, drain or restart several engines: an operation each, side by side, with one ``batch``.

    An engine that refuses does not keep the others back; the result says which did, in the order asked.
    """

    verb: ClassVar[str] = "engine.operate"
    permission: ClassVar[str] = "engine.operate"

    engine_ids: Sequence[int]
    do: str
    override: list[str] = field(default_factory=list)
    batch: uuid.UUID = field(default_factory=uuid.uuid4)

    def check(self) -> None:
        if self.do not in VERBS:
            raise Invalid(_("Choose start, stop, drain or restart."), field="do")
        if not self.engine_ids:
            raise Invalid(_("Choose at least one engine."), field="engine_ids")
        if len(self.engine_ids) > 1000:
            raise Invalid(_("Choose at most 1,000 engines at once."), field="engine_ids")

    def execute(self) -> list[EngineResult]:
        ids = list(dict.fromkeys(self.engine_ids))
        engines = Engine.objects.select_related("host", "revision", "environment", "current_start").in_bulk(
            ids
        )
        results = [self._one(engine_id, engines.get(engine_id)) for engine_id in ids]
        self.after = {
            "do": self.do,
            "batch": str(self.batch),
            "begun": [one.engine.name for one in results if one.engine and one.operation],
            "refused": {
                one.engine.name if one.engine else str(one.engine_id): one.error.code
                for one in results
                if one.error
            },
        }
        return results

    def _one(self, engine_id: int, engine: Engine | None) -> EngineResult:
        if engine is None:
            gone = Invalid(_("There is no engine with this number."), code="engine_unknown")
            return EngineResult(engine_id, None, error=gone)
        try:
            return EngineResult(engine_id, engine, operation=self._action(engine).run())
        except ActionError as error:
            return EngineResult(engine_id, engine, error=error)

    def _action(self, engine: Engine) -> Action[Operation]:
        match self.do:
            case "start":
                return StartEngine(self.actor, engine, override=self.override, batch=self.batch)
            case "stop":
                return StopEngine(self.actor, engine, batch=self.batch)
            case "drain":
                return DrainEngine(self.actor, engine, batch=self.batch)
            case _:
                return RestartEngine(self.actor, engine, override=self.override, batch=self.batch)
