"""Stopping an engine: the leader is asked, what is left is ended, nothing is left. Parameter: grace_s."""

from __future__ import annotations

from engines.choices import OperationKind
from engines.launch.ending import STOP_STEPS, stop_failed, stopped
from engines.operations.base import Context, Flow, register


@register
class Stop(Flow):
    kind = OperationKind.STOP
    steps = STOP_STEPS
    cancellable = False

    def succeeded(self, context: Context) -> None:
        stopped(context)

    def failed(self, context: Context, *, code: str, message: str, remedy: str) -> None:
        stop_failed(context, code=code, message=message)
