"""What kvadmin clears away by itself."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.utils import timezone

from kvadmin.celery import app
from kvadmin.tasks import clear_expired_sessions


@pytest.mark.django_db
def test_expired_sessions_go_and_others_stay(client, viewer):
    client.force_login(viewer)
    kept = client.session.session_key
    Session.objects.create(session_key="old", expire_date=timezone.now() - timedelta(seconds=1))
    clear_expired_sessions()
    assert [session.session_key for session in Session.objects.all()] == [kept]


def test_every_scheduled_task_is_there():
    app.loader.import_default_modules()
    assert {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()} <= set(app.tasks)
