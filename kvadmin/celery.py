"""Celery: queues ``ops`` (hosts and engines), ``poll`` (metrics) and ``rollup`` (storage). JSON only."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvadmin.settings")

app = Celery("kvadmin")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
