"""Draining an engine: wait until it has no request left, then stop it. Parameters: limit_s, grace_s,
then_stop (the parameters of the stop that follows if it is cancelled)."""

from __future__ import annotations

from django.utils import timezone
from django.utils.translation import gettext_lazy

from engines.choices import DesiredState, EngineState, OperationKind
from engines.launch.ending import STOP_STEPS, stop_failed, stopped
from engines.launch.endpoint import Endpoint
from engines.models import Engine
from engines.operations.base import Again, Context, Done, Flow, Step, register
from engines.operations.start import stop_after
from kvadmin.sentences import gettext as _

#: seconds that running requests get
LIMIT_S = 300


def drain(context: Context) -> Done | Again:
    """No request runs or waits, twice in a row, or the limit is over."""
    engine = context.engine
    limit = int(context.parameters.get("limit_s", LIMIT_S))
    since = context.scratch.setdefault("draining_since", timezone.now().timestamp())
    waited = timezone.now().timestamp() - since
    left = Endpoint(engine.base_url, engine.readable_key).unfinished()
    if left == 0:
        context.scratch["idle"] = context.scratch.get("idle", 0) + 1
        if context.scratch["idle"] >= 2:
            return Done(_("No request is left."))
        return Again(1, _("No request is running"))
    context.scratch["idle"] = 0
    if left is None and waited > 15:
        return Done(_("The engine does not say how many requests it has; going on."))
    if waited > limit:
        return Done(
            _("%(count)s requests are still running after %(limit)d s; they will be cut off.")
            % {"count": left if left is not None else "?", "limit": limit}
        )
    text = _("%(count)s requests are left") % {"count": left if left is not None else "?"}
    return Again(2, text, progress=min(waited / limit, 0.95) if limit else None)


@register
class Drain(Flow):
    kind = OperationKind.DRAIN
    steps = [
        Step("drain", gettext_lazy("Let requests finish"), drain, limit_s=24 * 3600),
        *STOP_STEPS,
    ]

    def succeeded(self, context: Context) -> None:
        stopped(context)

    def failed(self, context: Context, *, code: str, message: str, remedy: str) -> None:
        stop_failed(context, code=code, message=message)

    def cancelled(self, context: Context) -> None:
        """Back to serving, unless a stop is to follow or the engine had been asked to end already."""
        engine = context.engine
        if "then_stop" in context.parameters:
            stop_after(context)
            return
        if "terminated" in context.scratch:
            return
        Engine.objects.filter(pk=engine.pk).update(desired=DesiredState.RUNNING)
        engine.move(EngineState.READY, only_from=(EngineState.DRAINING,), operation=context.operation)
