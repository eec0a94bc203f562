"""`manage.py gateway` as a process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from kvadmin.env import BASE_DIR


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_says_that_its_port_is_taken(workers):
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        made = subprocess.run(
            [sys.executable, str(BASE_DIR / "manage.py"), "gateway"],
            env={**os.environ, "KVADMIN_GATEWAY_PORT": str(port), "KVADMIN_GATEWAY_WORKERS": workers},
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
