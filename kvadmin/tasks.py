"""Celery tasks of the project itself."""

from __future__ import annotations

from importlib import import_module

from celery import shared_task
from django.conf import settings

from kvadmin.api import idempotency


@shared_task(ignore_result=True)
def trim_idempotency_records() -> None:
    """Forget answers that were kept for repeats for longer than a day."""
    idempotency.trim()


@shared_task(ignore_result=True)
def clear_expired_sessions() -> None:
    """Delete the rows of sessions that have expired."""
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()
