"""How often kvadmin has tried in vain to mend a start by itself: to end it, or to take it up again."""

from __future__ import annotations

from django.db.models import F
from django.utils import timezone

from engines.launch.decide import BACKOFF_S
from engines.models import Engine, EngineStart


def note_try(start: EngineStart | None) -> None:
    """One more that came to nothing."""
    if start is not None:
        EngineStart.objects.filter(pk=start.pk).update(tries=F("tries") + 1, tried_at=timezone.now())


def forget_tries(engine: Engine) -> None:
    """A person asked for it now: earlier tries count no more."""
    engine.starts.exclude(tries=0).update(tries=0, tried_at=None)


def too_early(start: EngineStart) -> bool:
    """Whether the wait after the last try is not over. After the last of them it stays as long."""
    if not start.tries or start.tried_at is None:
        return False
    wait = BACKOFF_S[min(start.tries, len(BACKOFF_S)) - 1]
    return (timezone.now() - start.tried_at).total_seconds() < wait


def used_up(start: EngineStart) -> bool:
    return start.tries > len(BACKOFF_S)
