"""Celery tasks: rollups, partitions, retention. Each is safe to run twice."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from engines.metrics.partitions import drop_old, ensure_ahead
from engines.metrics.rollup import roll_up


@shared_task(ignore_result=True)
def roll_up_samples() -> None:
    """Complete minutes and hours, from wherever the last run left off."""
    roll_up()


@shared_task(ignore_result=True)
def keep_partitions() -> None:
    """Partitions ahead of now, and none older than is kept."""
    now = timezone.now()
    ensure_ahead(now)
    drop_old(now)
