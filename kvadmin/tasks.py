"""Celery tasks of the project itself."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from kvadmin.api import idempotency
from kvadmin.models import AuditEvent
from kvadmin.retention import delete_in_pieces


@shared_task(ignore_result=True)
def trim_idempotency_records() -> None:
    """Forget answers that were kept for repeats for longer than a day."""
    idempotency.trim()


@shared_task(ignore_result=True)
def clear_expired_sessions() -> None:
    """Delete the rows of sessions that have expired."""
    import_module(settings.SESSION_ENGINE).SessionStore.clear_expired()


@shared_task(ignore_result=True)
def trim_audit_events() -> int:
    """Delete audit events older than KVADMIN_KEEP_AUDIT_D; how many there were."""
    before = timezone.now() - timedelta(days=settings.KVADMIN_KEEP_AUDIT_D)
    return delete_in_pieces(AuditEvent.objects.filter(at__lt=before), at_once=5000)
