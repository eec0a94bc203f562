"""Restarting an engine: a stop and a start in one operation, with what the engine is set to now."""

from __future__ import annotations

from django.utils.translation import gettext_lazy

from engines.choices import EngineState, OperationKind
from engines.launch.ending import STOP_STEPS, stop_failed
from engines.launch.loading import START_STEPS, start_failed
from engines.operations.base import Context, Done, Flow, Step, register
from engines.operations.start import stop_after
from kvadmin.sentences import gettext as _


def between(context: Context) -> Done:
    """Stopped, and about to start again."""
    engine = context.engine
    engine.move(
        EngineState.STARTING,
        only_from=(EngineState.STOPPING, EngineState.STOPPED, EngineState.FAILED, EngineState.READY),
        operation=context.operation,
    )
    return Done(_("Stopped; starting again."))


@register
class Restart(Flow):
    kind = OperationKind.RESTART
    steps = [
        *STOP_STEPS,
        Step("between", gettext_lazy("Stopped"), between),
        *START_STEPS,
    ]

    def failed(self, context: Context, *, code: str, message: str, remedy: str) -> None:
        if context.engine.observed == EngineState.STOPPING:
            stop_failed(context, code=code, message=message)
        else:
            start_failed(context, code=code, message=message)

    def cancelled(self, context: Context) -> None:
        stop_after(context)
