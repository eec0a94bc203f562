"""What kvadmin clears away by itself."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.utils import timezone

from kvadmin.actions import Actor
from kvadmin.celery import app
from kvadmin.models import AuditEvent
from kvadmin.retention import delete_in_pieces
from kvadmin.tasks import clear_expired_sessions, trim_audit_events


@pytest.mark.django_db
def test_expired_sessions_go_and_others_stay(client, viewer):
    client.force_login(viewer)
    kept = client.session.session_key
    Session.objects.create(session_key="old", expire_date=timezone.now() - timedelta(seconds=1))
    clear_expired_sessions()
    assert [session.session_key for session in Session.objects.all()] == [kept]


@pytest.mark.django_db
def test_old_audit_events_go_and_others_stay(settings):
    settings.KVADMIN_KEEP_AUDIT_D = 100
    for name, days in (("old", 101), ("kept", 99)):
        event = AuditEvent.objects.record(actor=Actor.system(), verb=name, subject=None)
        AuditEvent.objects.filter(pk=event.pk).update(at=timezone.now() - timedelta(days=days))
    assert trim_audit_events() == 1
    assert [event.verb for event in AuditEvent.objects.all()] == ["kept"]


@pytest.mark.django_db
def test_they_go_a_piece_at_a_time():
    for _row in range(7):
        AuditEvent.objects.record(actor=Actor.system(), verb="old", subject=None)
    assert delete_in_pieces(AuditEvent.objects.filter(verb="old"), at_once=3) == 7
    assert not AuditEvent.objects.exists()


def test_every_scheduled_task_is_there():
    app.loader.import_default_modules()
    assert {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()} <= set(app.tasks)
