"""Celery tasks of the project itself."""

from __future__ import annotations

from celery import shared_task

from kvadmin.api import idempotency


@shared_task(ignore_result=True)
def trim_idempotency_records() -> None:
    """Forget answers that were kept for repeats for longer than a day."""
    idempotency.trim()
