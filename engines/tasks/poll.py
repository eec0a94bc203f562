"""Celery task: keep one poller running, in whichever worker process comes first.

The task is a look after it, not a poll: a lost or doubled tick changes nothing. A session-level advisory
lock in PostgreSQL makes it one for the whole installation; it falls with the process that holds it, and
the next tick begins anew elsewhere.
"""

from __future__ import annotations

import logging
import os
import threading

from celery import shared_task
from celery.signals import worker_process_shutdown, worker_shutdown
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from engines.metrics.poller import Poller
from kvadmin import advisory

logger = logging.getLogger(__name__)

#: any number that only this lock uses
_LOCK = 7_311_002


class _Running:
    """A poller in a thread of its own, with the connection that holds the lock."""

    def __init__(self, lock: BaseDatabaseWrapper) -> None:
        self.pid = os.getpid()
        self._lock = lock
        self.poller = Poller(still_ours=self._still_ours)
        self.thread = threading.Thread(target=self._run, name="poller", daemon=True)
        self.thread.start()

    def _still_ours(self) -> bool:
        """False once the connection, and with it the lock, is lost."""
        try:
            with self._lock.cursor() as cursor:
                cursor.execute("SELECT 1")
        except DatabaseError:
            return False
        return True

    def _run(self) -> None:
        try:
            self.poller.run_here()
        finally:
            self._lock.close()

    def stop(self) -> None:
        self.poller.stop()
        self.thread.join(10)


_guard = threading.Lock()
_running: _Running | None = None


def _locked() -> BaseDatabaseWrapper | None:
    """A connection that holds the lock, or None when another process has it."""
    lock = connections.create_connection("default")
    lock.inc_thread_sharing()
    with lock.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
        if cursor.fetchone()[0]:
            return lock
    lock.close()
    return None


@shared_task(ignore_result=True)
def keep_polling() -> bool:
    """Begin polling here if nobody polls; True if this process polls."""
    global _running
    with _guard:
        if _running is not None and _running.pid == os.getpid() and _running.thread.is_alive():
            return True
        lock = _locked()
        if lock is None:
            return False
        try:
            advisory.check_session_locks()
        except advisory.LocksDoNotHold as error:
            lock.close()
            logger.error("%s", error)
            return False
        _running = _Running(lock)
        logger.info("polling engines in process %s", os.getpid())
        return True


def stop_polling(**_: object) -> None:
    """End this process's poller, if it has one, after it has written what it read."""
    global _running
    with _guard:
        if _running is not None and _running.pid == os.getpid():
            _running.stop()
        _running = None


worker_process_shutdown.connect(stop_polling)
worker_shutdown.connect(stop_polling)
