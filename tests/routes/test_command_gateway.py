"""`manage.py gateway` as a process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from kvadmin.env import BASE_DIR
from tests.support.up import free_ports, get


@pytest.mark.parametrize("workers", [1, 2])
def test_the_process_serves_and_ends_on_sigterm(workers):
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, str(BASE_DIR / "manage.py"), "gateway"],
        env={
            **os.environ,
            "KVADMIN_GATEWAY_PORT": str(port),
            "KVADMIN_GATEWAY_WORKERS": str(workers),
        },
    )
    try:
        wait_for(lambda: get(f"http://127.0.0.1:{port}/readyz")[0] == 200)
        status, body = get(f"http://127.0.0.1:{port}/v1/models")
        assert status == 401
        assert json.loads(body)["error"]["code"] == "invalid_api_key"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def wait_for(condition) -> None:
    limit = time.monotonic() + 40
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < limit
        time.sleep(0.1)


def test_it_says_that_its_port_is_taken():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        made = subprocess.run(
            [sys.executable, str(BASE_DIR / "manage.py"), "gateway"],
            env={**os.environ, "KVADMIN_GATEWAY_PORT": str(port)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert made.returncode == 1
    assert f"The gateway cannot listen on 127.0.0.1 port {port}" in made.stderr
    assert "Traceback" not in made.stderr


def test_it_loads_no_django():
    code = "import sys, routes.gateway.main; sys.exit('django' in sys.modules or 'celery' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=BASE_DIR, check=False).returncode == 0
