"""Celery tasks: each takes ids, is short, and may run twice."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.db.models import F, Q
from django.utils import timezone

from engines.models import Operation, Transition
from engines.operations import runner
from kvadmin.retention import delete_in_pieces

#: how late a tick may be before reconcile takes the operation up again
GRACE_S = 5
#: how far the clocks of two workers may be apart; a tick that is refused for it comes GRACE_S later
SKEW_S = 1


@shared_task(ignore_result=True)
def advance_operation(operation_id: int) -> None:
    """One tick if one is due. Of tasks doubled by a late worker all but one end here, or each would go on
    for as long as the operation does.
    """
    soon = timezone.now() + timedelta(seconds=SKEW_S)
    due = Q(next_tick_at__lte=soon) | Q(cancel_requested=True)
    if not Operation.objects.active().filter(due, pk=operation_id).exists():
        return
    after = runner.tick(operation_id)
    if after is not None:
        advance_operation.apply_async((operation_id,), countdown=after or None)


@shared_task(ignore_result=True)
def resume_operations() -> None:
    """Take up operations whose tick was lost: a killed worker, an emptied broker."""
    late = timezone.now() - timedelta(seconds=GRACE_S)
    for operation_id in Operation.objects.due().filter(next_tick_at__lte=late).values_list("pk", flat=True):
        advance_operation.delay(operation_id)


@shared_task(ignore_result=True)
def trim_operations() -> int:
    """Delete operations that ended longer ago than KVADMIN_KEEP_OPERATIONS_D; how many there were.

    Those of a start that is still open stay: the one that launched it, and what was ordered since.
    """
    before = timezone.now() - timedelta(days=settings.KVADMIN_KEEP_OPERATIONS_D)
    launched = Transition.objects.filter(
        start=F("engine__current_start"), start__ended_at=None, operation__isnull=False
    )
    since = Q(
        engine__current_start__isnull=False,
        engine__current_start__ended_at=None,
        created_at__gte=F("engine__current_start__created_at"),
    )
    old = Operation.objects.filter(finished_at__lt=before).exclude(
        Q(pk__in=launched.values("operation")) | since
    )
    return delete_in_pieces(old, at_once=500)
