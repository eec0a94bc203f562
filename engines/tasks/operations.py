"""Celery tasks: each takes ids, is short, and may run twice."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from engines.models import Operation
from engines.operations import runner

#: how late a tick may be before reconcile takes the operation up again
GRACE_S = 5


@shared_task(ignore_result=True)
def advance_operation(operation_id: int) -> None:
    after = runner.tick(operation_id)
    if after is not None:
        advance_operation.apply_async((operation_id,), countdown=after or None)


@shared_task(ignore_result=True)
def resume_operations() -> None:
    """Take up operations whose tick was lost: a killed worker, an emptied broker."""
    late = timezone.now() - timedelta(seconds=GRACE_S)
    for operation_id in Operation.objects.due().filter(next_tick_at__lte=late).values_list("pk", flat=True):
        advance_operation.delay(operation_id)
