from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.db import transaction
from django.utils.translation import gettext as _

from engines.actions.create_engine import picture
from engines.choices import EngineState, Launcher
from engines.launch.folders import folders_of
from engines.models import Engine
from kvadmin.actions import Action, Conflict, Invalid


@dataclass
class RemoveEngine(Action[None]):
    """Forget an engine with its starts, operations and samples.

    Its folders on the host stay, or with ``remove_files`` are removed afterwards by a worker, which a host
    that cannot be reached does not hinder.

    Only at rest, once a look at the host found nothing left of it. An adopted engine may be forgotten
    while it runs: it goes on without kvadmin. ``forget`` does without the look, for one whose host will
    not be reached any more.
    """

    verb: ClassVar[str] = "engine.remove"
    permission: ClassVar[str] = "engine.change"

    engine: Engine
    forget: bool = False
    remove_files: bool = False

    def subject(self) -> Engine:
        return self.engine

    def check(self) -> None:
        engine = self.engine
        active = engine.operations.active().first()
        if active is not None:
            raise Conflict(
                _("%(what)s is still under way.") % {"what": active},
                code="operation_active",
                remedy=_("Wait until it ends, or cancel it first."),
            )
        start = engine.current_start
        if start is not None and start.launcher == Launcher.ADOPTED:
            return
        if self.forget and self.remove_files:
            raise Invalid(
                _("What is forgotten without a look at its host may still run, so its files stay there."),
                code="files_in_use",
                field="remove_files",
                remedy=_("Choose one of the two."),
            )
        at_rest = engine.observed in {EngineState.STOPPED, EngineState.FAILED}
        if self.forget and (at_rest or engine.observed == EngineState.UNREACHABLE):
            return
        ours = engine.starts.exclude(launcher=Launcher.ADOPTED)
        if not at_rest or ours.filter(ended_at=None).exists():
            raise Conflict(
                _("%(engine)s is not stopped: its processes would stay on the host.")
                % {"engine": engine.name},
                code="engine_running",
                remedy=_("Stop it first."),
            )

    def execute(self) -> None:
        engine = self.engine
        self.before = {
            **picture(engine),
            "state": engine.observed,
            "forgotten": self.forget,
            "files": "removed" if self.remove_files else "kept",
        }
        pk = engine.pk
        folders = folders_of(engine.starts.filter(ended_at__isnull=False)) if self.remove_files else []
        if folders:
            remove_after_commit(engine.host_id, folders)
        engine.delete()
        # the audit row names what is gone
        engine.pk = pk


def remove_after_commit(host_id: int, folders: list[str]) -> None:
    from engines.tasks.hosts import remove_start_folders

    transaction.on_commit(lambda: remove_start_folders.delay(host_id, folders))
