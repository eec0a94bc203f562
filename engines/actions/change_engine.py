from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.utils.translation import gettext as _

from engines.actions.create_engine import picture
from engines.actions.engine_input import bind_problem, environment_problem, name_problem, port_problem
from engines.choices import EngineState
from engines.models import Engine, Revision, VllmEnvironment
from engines.states import touch_engine
from kvadmin.actions import Action, Conflict, Invalid

_AT_REST = (EngineState.STOPPED, EngineState.FAILED)


@dataclass
class ChangeEngine(Action[Engine]):
    """Change an engine's settings; None leaves one as it is.

    A new revision or environment takes effect at the next start: afterwards ``restart_needed`` says
    whether the running engine differs. Port and address change only while it is at rest, because poller
    and gateway would look in the wrong place.
    """

    verb: ClassVar[str] = "engine.change"
    permission: ClassVar[str] = "engine.change"

    engine: Engine
    name: str | None = None
    revision: Revision | None = None
    environment: VllmEnvironment | None = None
    port: int | None = None
    bind_address: str | None = None
    keep_running: bool | None = None

    def subject(self) -> Engine:
        return self.engine

    @property
    def restart_needed(self) -> bool:
        return bool(self.engine.pending_changes)

    def check(self) -> None:
        engine = self.engine
        problems: dict[str, str] = {}
        if self.name is not None:
            self.name = self.name.strip()
            problems["name"] = name_problem(self.name, engine)
        if self.port is not None:
            problems["port"] = port_problem(engine.host, self.port, engine)
        if self.bind_address is not None:
            self.bind_address = self.bind_address.strip()
            problems["bind_address"] = bind_problem(engine.host, self.bind_address)
        if self.environment is not None:
            problems["environment"] = environment_problem(engine.host, self.environment)
        errors = {name: [text] for name, text in problems.items() if text}
        if errors:
            field, texts = next(iter(errors.items()))
            raise Invalid(texts[0], field=field, errors=errors)
        moved = [
            field
            for field in ("port", "bind_address")
            if getattr(self, field) not in {None, getattr(engine, field)}
        ]
        if moved and engine.observed not in _AT_REST:
            raise Conflict(
                _("Port and bind address change only while the engine is stopped."),
                code="engine_running",
                remedy=_("Stop it, change it, then start it again."),
                field=moved[0],
            )

    def execute(self) -> Engine:
        engine = self.engine
        self.before = picture(engine)
        fields = ["name", "revision", "environment", "port", "bind_address", "keep_running"]
        changed = [field for field in fields if getattr(self, field) is not None]
        for field in changed:
            setattr(engine, field, getattr(self, field))
        if changed:
            engine.save(update_fields=changed)
            touch_engine(engine.pk)
        self.after = picture(engine)
        return engine
