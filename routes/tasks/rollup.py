"""Celery tasks: rollups, partitions, retention. Each is safe to run twice."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from routes.usage.rollup import roll_up
from routes.usage.tables import drop_old, ensure_ahead


@shared_task(ignore_result=True)
def roll_up_usage() -> None:
    """Complete minutes, hours and days, and those that rows came late for."""
    roll_up()


@shared_task(ignore_result=True)
def keep_usage_partitions() -> None:
    """Partitions ahead of now, and none older or larger than is kept."""
    now = timezone.now()
    ensure_ahead(now)
    drop_old(now)
