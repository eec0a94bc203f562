"""Starting an engine: checks, files, launch, loading, ready.

Parameters: override (codes of checks to waive), resume (a start found running), launcher, load_limit_s.
"""

from __future__ import annotations

from contextlib import suppress

from django.db import transaction

from engines.choices import DesiredState, EngineState, OperationKind
from engines.launch.loading import START_STEPS, start_failed
from engines.launch.tries import forget_tries
from engines.models import Engine
from engines.operations.base import Context, Flow, register
from engines.operations.begin import begin_operation
from kvadmin.actions import Actor, Conflict


@register
class Start(Flow):
    kind = OperationKind.START
    steps = START_STEPS

    def failed(self, context: Context, *, code: str, message: str, remedy: str) -> None:
        start_failed(context, code=code, message=message)

    def cancelled(self, context: Context) -> None:
        stop_after(context)


def stop_after(context: Context) -> None:
    """What was cancelled is stopped: whatever runs of the engine is ended by an operation of its own."""
    engine = context.engine
    Engine.objects.filter(pk=engine.pk).update(desired=DesiredState.STOPPED)
    forget_tries(engine)
    engine.move(
        EngineState.STOPPING,
        only_from=(
            EngineState.STARTING,
            EngineState.LOADING,
            EngineState.DRAINING,
            EngineState.STOPPED,
            EngineState.UNREACHABLE,
        ),
        operation=context.operation,
    )
    asked_by = Actor(user=context.operation.requested_by, source=context.operation.source)

    def stop() -> None:
        # somebody else's stop does as well
        with suppress(Conflict):
            begin_operation(
                OperationKind.STOP,
                actor=asked_by,
                host=context.host,
                engine=engine,
                parameters=context.parameters.get("then_stop"),
            )

    transaction.on_commit(stop)
