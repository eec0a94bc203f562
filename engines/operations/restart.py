"""Restarting an engine: a stop and a start in one operation, with what the engine is set to now. With the
parameter ``drain`` it finishes its requests first (``limit_s``, as for a drain)."""

from __future__ import annotations

from django.utils.translation import gettext_lazy

from engines.choices import EngineState, OperationKind
from engines.launch.ending import STOP_STEPS, stop_failed
from engines.launch.loading import START_STEPS, start_failed
from engines.operations.base import Again, Context, Done, Flow, Step, register
from engines.operations.drain import drain
from engines.operations.start import stop_after
from kvadmin.sentences import gettext as _


def drain_first(context: Context) -> Done | Again:
    """Skipped where nobody calls."""
    return drain(context) if context.parameters.get("drain") else Done(skipped=True)


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
        Step("drain", gettext_lazy("Let requests finish"), drain_first, limit_s=24 * 3600),
        *STOP_STEPS,
        Step("between", gettext_lazy("Stopped"), between),
        *START_STEPS,
    ]

    def failed(self, context: Context, *, code: str, message: str, remedy: str) -> None:
        if context.engine.observed in {EngineState.STOPPING, EngineState.DRAINING}:
            stop_failed(context, code=code, message=message)
        else:
            start_failed(context, code=code, message=message)

    def cancelled(self, context: Context) -> None:
        """While it only drained it goes on serving; afterwards, or when asked to, what runs is stopped."""
        engine = context.engine
        asked_to_end = "terminated" in context.scratch or "then_stop" in context.parameters
        if engine.observed == EngineState.DRAINING and not asked_to_end:
            engine.move(EngineState.READY, only_from=(EngineState.DRAINING,), operation=context.operation)
            return
        stop_after(context)
