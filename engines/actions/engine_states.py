"""What the present state of an engine allows, in sentences."""

from __future__ import annotations

from django.utils.translation import gettext as _

from engines.choices import DesiredState, EngineState
from engines.models import Engine
from engines.states import touch_engine
from kvadmin.actions import Conflict
from kvadmin.crypto import is_readable


def refuse(engine: Engine, *, unless: tuple[EngineState, ...]) -> None:
    """Conflict when the engine's present state is none of ``unless``."""
    engine.refresh_from_db(fields=["observed", "desired"])
    state = EngineState(engine.observed)
    if state in unless:
        return
    name = {"engine": engine.name, "state": state.label}
    sentence, remedy = {
        EngineState.STOPPED: (_("%(engine)s is stopped."), _("Start it first.")),
        EngineState.FAILED: (_("%(engine)s has failed and does not run."), _("Start it again.")),
        EngineState.STARTING: (
            _("%(engine)s is being started."),
            _("Wait until it is ready, or cancel the start."),
        ),
        EngineState.LOADING: (
            _("%(engine)s is loading its model."),
            _("Wait until it is ready, or cancel the start."),
        ),
        EngineState.READY: (_("%(engine)s runs already."), _("Stop or restart it instead.")),
        EngineState.DRAINING: (
            _("%(engine)s is being drained."),
            _("Wait until it has stopped, or cancel the drain."),
        ),
        EngineState.STOPPING: (_("%(engine)s is being stopped."), _("Wait until it has stopped.")),
        EngineState.UNREACHABLE: (
            _("%(engine)s cannot be reached: whether it runs is not known."),
            _("Bring its host back first; kvadmin then finds out by itself."),
        ),
    }[state]
    raise Conflict(sentence % name, code=f"engine_{state.value}", remedy=remedy)


def refuse_unreadable(engine: Engine) -> None:
    """Conflict when the secret variables of the engine's profile cannot be decrypted any more."""
    revision = engine.revision
    if revision is None or is_readable(revision, "secret_environment"):
        return
    raise Conflict(
        _("The secret variables of %(revision)s cannot be read with kvadmin's present data key.")
        % {"revision": str(revision)},
        code="secret_unreadable",
        remedy=_(
            "Enter them again in the profile and choose the new revision for %(engine)s, or put the old data "
            "key back behind the new one."
        )
        % {"engine": engine.name},
    )


def set_desired(engine: Engine, desired: DesiredState) -> None:
    """Compare-and-set what the engine should be."""
    changed = Engine.objects.filter(pk=engine.pk).exclude(desired=desired).update(desired=desired)
    engine.desired = desired
    if changed:
        touch_engine(engine.pk)


def has_callers(engine: Engine) -> bool:
    """Whether the gateway sends it requests now: it is ready and a target of a route, both switched on."""
    return (
        EngineState(engine.observed) == EngineState.READY
        and engine.targets.filter(enabled=True, route__enabled=True).exists()
    )
