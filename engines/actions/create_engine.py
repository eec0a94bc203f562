from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.utils.translation import gettext as _

from engines.actions.engine_input import (
    bind_problem,
    default_bind_address,
    environment_problem,
    name_problem,
    newest_environment,
    port_problem,
    suggest_port,
)
from engines.models import Engine, Host, Revision, VllmEnvironment
from engines.states import touch_engine
from kvadmin.actions import Action, Invalid
from kvadmin.crypto import new_secret


@dataclass
class CreateEngine(Action[Engine]):
    """An engine from a profile's revision on a host, stopped. Nothing happens on the host.

    Without a port, the first free one from 8000; without an address, the one at which the gateway will
    look for it; without an environment, the newest usable one of the host.
    """

    verb: ClassVar[str] = "engine.create"
    permission: ClassVar[str] = "engine.change"

    name: str
    host: Host
    revision: Revision
    environment: VllmEnvironment | None = None
    port: int | None = None
    bind_address: str = ""
    keep_running: bool = False

    def check(self) -> None:
        self.name = self.name.strip()
        self.bind_address = self.bind_address.strip() or default_bind_address(self.host)
        if self.port is None:
            self.port = suggest_port(self.host)
        if self.environment is None:
            self.environment = newest_environment(self.host)
        problems = {
            "name": name_problem(self.name),
            "port": port_problem(self.host, self.port),
            "bind_address": bind_problem(self.host, self.bind_address),
            "environment": environment_problem(self.host, self.environment),
        }
        if self.revision.profile.archived_at is not None:
            problems["revision"] = _("That profile is archived: choose another, or bring it back.")
        errors = {name: [text] for name, text in problems.items() if text}
        if errors:
            field, texts = next(iter(errors.items()))
            raise Invalid(texts[0], field=field, errors=errors)

    def execute(self) -> Engine:
        engine = Engine.objects.create(
            name=self.name,
            host=self.host,
            revision=self.revision,
            environment=self.environment,
            port=self.port,
            bind_address=self.bind_address,
            keep_running=self.keep_running,
            served_names=list(self.revision.served_names) or [self.revision.model],
            vllm_version=self.environment.version if self.environment else "",
            api_key=new_secret(),
        )
        touch_engine(engine.pk)
        self.after = picture(engine)
        return engine


def picture(engine: Engine) -> dict[str, object]:
    """An engine's settings for the audit, without its key."""
    return {
        "name": engine.name,
        "host": engine.host.name,
        "revision": str(engine.revision) if engine.revision else None,
        "environment": str(engine.environment) if engine.environment else None,
        "port": engine.port,
        "bind_address": engine.bind_address,
        "keep_running": engine.keep_running,
    }
