"""Celery: queues ``ops`` (hosts and engines), ``poll`` (metrics) and ``rollup`` (storage). JSON only."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import redis
from celery import Celery
from celery.signals import heartbeat_sent, setup_logging, worker_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvadmin.settings")

app = Celery("kvadmin")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

QUEUES = ("ops", "poll", "rollup")
HEARTBEAT_S = 5
#: a queue whose workers have all been silent for this long has none
SILENCE_S = 20
#: how long a worker that starts waits before it asks a database again that does not answer
LOCK_CHECK_WAIT_S = 2

logger = logging.getLogger(__name__)
_last_beat = 0.0


def heartbeat_key(queue: str) -> str:
    return f"kvadmin:heartbeat:{queue}"


@setup_logging.connect
def keep_logging(**kwargs: Any) -> None:
    """Connected, so that Celery leaves the logging as Django set it up."""


@worker_init.connect
def check_locks(**kwargs: Any) -> None:
    """End a worker that starts where advisory locks do not hold: it would do things twice."""
    from django.db import DatabaseError

    from kvadmin import advisory

    while True:
        try:
            advisory.check_session_locks()
        except advisory.LocksDoNotHold as error:
            raise SystemExit(str(error)) from error
        except DatabaseError as error:
            logger.warning("the worker waits for the database: %s", error)
            time.sleep(LOCK_CHECK_WAIT_S)
        else:
            return


@heartbeat_sent.connect
def say_alive(**kwargs: Any) -> None:
    """Tell the console which queues have a worker. Called every two seconds; written every five."""
    global _last_beat
    if time.monotonic() - _last_beat < HEARTBEAT_S:
        return
    _last_beat = time.monotonic()
    from kvadmin import valkey

    try:
        with valkey.client().pipeline(transaction=False) as pipe:
            for queue in app.amqp.queues.consume_from:
                pipe.set(heartbeat_key(queue), "1", ex=SILENCE_S)
            pipe.execute()
    except redis.RedisError as error:
        logger.warning("heartbeat not written: %s", type(error).__name__)
