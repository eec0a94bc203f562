"""Every run of the tests has its own PostgreSQL and Valkey, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection
from kombu import Connection

from kvadmin.env import BASE_DIR
from kvadmin.up import proc

RUN = """
import os, time
from tests.support import services
services.begin()
print(services._services.folder, *(server.pid for server, _ in services._services.processes), flush=True)
try:
    time.sleep(60)
finally:
    services.finish()
"""


@pytest.mark.django_db
def test_it_is_a_test_database_of_its_own():
    with connection.cursor() as cursor:
        cursor.execute("select current_database()")
        assert cursor.fetchone()[0].startswith("test_")


def test_it_has_a_broker_that_takes_messages(settings):
    with Connection(settings.CELERY_BROKER_URL) as broker:
        queue = broker.SimpleQueue("throw-away")
        queue.put({"hello": "you"})
        assert queue.get(timeout=5).payload == {"hello": "you"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_leaves_no_server_behind_when_it_is_stopped(number):
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"DATABASE_URL", "VALKEY_URL", "PYTEST_XDIST_WORKER"}
    }
    run = subprocess.Popen(
        [sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True, cwd=BASE_DIR, env=environment
    )
    folder, *pids = run.stdout.readline().split()
    servers = [proc.identity(int(pid)) for pid in pids]
    assert len(servers) == 2
    assert all(servers)

    run.send_signal(number)
    run.wait(20)

    assert proc.wait_until(lambda: not any(proc.alive(server) for server in servers), 20)
    if number == signal.SIGINT:
        assert not Path(folder).exists()
    else:
        subprocess.run(
            [sys.executable, "-c", "from tests.support import services; services.sweep()"],
            cwd=BASE_DIR,
            check=True,
        )
        assert not Path(folder).exists()
