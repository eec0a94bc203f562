"""The one way an engine's observed state changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connection, transaction
from django.dispatch import Signal
from django.utils import timezone

if TYPE_CHECKING:
    from engines.choices import EngineState
    from engines.models import Engine, EngineStart, Operation

#: an engine has another observed state: ``engine_id`` and ``state``; a receiver that fails is logged
engine_moved = Signal()


def next_seq() -> int:
    """The next number of the sequence behind ``Engine.seq``; grows over all engines."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('engines_change_seq')")
        return cursor.fetchone()[0]


def move_engine(
    engine: Engine,
    to: EngineState,
    *,
    only_from: tuple[EngineState, ...],
    reason_code: str = "",
    reason: str = "",
    start: EngineStart | None = None,
    operation: Operation | None = None,
) -> bool:
    """Compare-and-set; see Engine.move. Lock-free: two callers race, exactly one wins.

    ``engine_moved`` follows the commit.
    """
    from engines.models import Engine, Transition

    with transaction.atomic():
        old = engine.observed
        if old not in only_from or old == to:
            engine.refresh_from_db(fields=["observed", "state_at", "reason_code", "reason"])
            old = engine.observed
            if old not in only_from or old == to:
                return False
        now = timezone.now()
        changed = Engine.objects.filter(pk=engine.pk, observed=old).update(
            observed=to, state_at=now, reason_code=reason_code, reason=reason, seq=next_seq()
        )
        if changed != 1:
            engine.refresh_from_db(fields=["observed", "state_at", "reason_code", "reason"])
            return False
        Transition.objects.create(
            engine=engine,
            start=start,
            operation=operation,
            from_state=old,
            to_state=to,
            reason_code=reason_code,
            reason=reason,
            at=now,
        )
        engine_id = engine.pk
        transaction.on_commit(
            lambda: engine_moved.send_robust(Engine, engine_id=engine_id, state=to), robust=True
        )
    engine.observed, engine.state_at = to, now
    engine.reason_code, engine.reason = reason_code, reason
    return True


def touch_engine(engine_id: int) -> None:
    """Mark an engine as changed for pages that ask "what is new since"."""
    from engines.models import Engine

    Engine.objects.filter(pk=engine_id).update(seq=next_seq())


def note_reason(engine: Engine, code: str, text: str) -> bool:
    """Say why an engine is as it is without a change of state; True if that is news."""
    from engines.models import Engine

    if (engine.reason_code, engine.reason) == (code, text):
        return False
    changed = Engine.objects.filter(pk=engine.pk, observed=engine.observed).update(
        reason_code=code, reason=text, seq=next_seq()
    )
    if changed:
        engine.reason_code, engine.reason = code, text
    return bool(changed)
