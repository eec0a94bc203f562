"""Desired against observed, every few seconds; see engines/launch/reconcile.py."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait

from celery import shared_task
from django.db import close_old_connections, connection

from engines.launch import reconcile

logger = logging.getLogger(__name__)

#: hosts looked at side by side by one worker process
THREADS = 16
#: how long the task waits for its hosts; slower ones go on in their threads and delay nobody
WAIT_S = 4.0

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}
_under_way: set[int] = set()


def _pool() -> ThreadPoolExecutor:
    """This process's threads; a forked child makes its own."""
    with _lock:
        if os.getpid() not in _pools:
            _pools.clear()
            _under_way.clear()
            _pools[os.getpid()] = ThreadPoolExecutor(THREADS, thread_name_prefix="reconcile")
        return _pools[os.getpid()]


def _one(host_id: int) -> None:
    close_old_connections()
    try:
        reconcile.reconcile_host(host_id)
    except Exception:
        # one host's surprise must not keep the others from being looked at
        logger.exception("reconcile of host %s", host_id)
    finally:
        connection.close()
        with _lock:
            _under_way.discard(host_id)


@shared_task(ignore_result=True)
def reconcile_engines() -> None:
    pool = _pool()
    begun = []
    for host_id in reconcile.hosts_to_reconcile():
        with _lock:
            if host_id in _under_way:
                continue
            _under_way.add(host_id)
        begun.append(pool.submit(_one, host_id))
    wait(begun, timeout=WAIT_S)
