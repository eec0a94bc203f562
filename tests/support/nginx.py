"""nginx as a proxy before a port, to compare with. Debian's nginx-light; it is not skipped where absent."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.up import free_ports, get


def executable() -> str:
    """Raises RuntimeError with what to install."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        raise RuntimeError("There is no nginx to compare with. Install it: apt-get install nginx-light.")
    return found


@contextmanager
def nginx(upstream: int, folder: Path) -> Iterator[int]:
    """Its port. It answers /-/ready itself and sends all else to ``upstream``, a connection for each."""
    (port,) = free_ports(1)
    temporary = "\n".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"""
        {"user root;" if os.geteuid() == 0 else ""}
        daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log info;
        events {{ worker_connections 256; }}
        http {{
            access_log {folder}/access.log;
            {temporary}
            client_header_timeout 2s; client_body_timeout 2s; client_max_body_size 32m;
            keepalive_timeout 1s; lingering_timeout 1s;
            server {{
                listen 127.0.0.1:{port};
                location = /-/ready {{ return 204; }}
                location / {{ proxy_pass http://127.0.0.1:{upstream}; proxy_http_version 1.1; }}
            }}
        }}
        """
    )
    process = subprocess.Popen(
        [executable(), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"], stdin=subprocess.DEVNULL
    )
    try:
        limit = time.monotonic() + 20
        while not _ready(port):
            assert process.poll() is None, (folder / "error.log").read_text()
            assert time.monotonic() < limit, "nginx did not answer"
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def _ready(port: int) -> bool:
    try:
        return get(f"http://127.0.0.1:{port}/-/ready")[0] == 204
    except OSError:
        return False
