"""``manage.py gateway`` as a process on the tests' database, and an engine's double in a thread behind it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import uvloop
from django.conf import settings
from django.db import connection

from kvadmin.env import BASE_DIR
from routes import keyformat
from routes.models import Business, Key
from tests.support.up import free_ports
from tests.support.upstream import Answer, Upstream


def wait_for(condition: Callable[[], Any], limit_s: float = 40) -> Any:
    limit = time.monotonic() + limit_s
    while True:
        try:
            found = condition()
            if found:
                return found
        except (OSError, httpx.TransportError):
            pass
        assert time.monotonic() < limit, "it did not come about"
        time.sleep(0.05)


def database_url() -> str:
    found = connection.settings_dict
    user = quote(found["USER"] or "postgres", safe="")
    password = f":{quote(found['PASSWORD'], safe='')}" if found["PASSWORD"] else ""
    host, port = found["HOST"], found["PORT"]
    if host.startswith("/"):
        return f"postgresql://{user}{password}@/{found['NAME']}?host={quote(host, safe='/')}"
    return f"postgresql://{user}{password}@{host}:{port or 5432}/{found['NAME']}"


def issue(business: Business, name: str = "backend", **fields: Any) -> tuple[Key, str]:
    """A key as a row, and its text."""
    public, text = keyformat.new_key()
    digest = keyformat.digest(text, settings.KVADMIN_PEPPER)
    return Key.objects.create(business=business, name=name, public_id=public, digest=digest, **fields), text


class GatewayProcess:
    def __init__(self, home: Path, *, workers: int = 1, **environment: str):
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.home = home
        self.log = home / "gateway.log"
        self.environment = {
            **os.environ,
            "KVADMIN_HOME": str(home),
            "KVADMIN_GATEWAY_PORT": str(self.port),
            "KVADMIN_GATEWAY_WORKERS": str(workers),
            "DATABASE_URL": database_url(),
            "KVADMIN_PEPPER": settings.KVADMIN_PEPPER,
            "KVADMIN_DATA_KEYS": ",".join(settings.KVADMIN_DATA_KEYS),
            **environment,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it and do not wait."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(BASE_DIR / "manage.py"), "gateway"],
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def start(self) -> GatewayProcess:
        self.begin()
        try:
            wait_for(lambda: httpx.get(f"{self.url}/readyz").status_code == 200)
        except AssertionError:
            self.stop()
            raise AssertionError(self.log.read_text()) from None
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process
        self.process.send_signal(number)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()

    def workers(self) -> list[int]:
        """Process ids of its workers, where there are several."""
        assert self.process
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill_worker(self, pid: int) -> None:
        """kill -9, and wait until another has taken its place."""
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: pid not in self.workers() and len(self.workers()) > 1)

    @contextmanager
    def caller_of(self, worker: int, key: str) -> Iterator[httpx.Client]:
        """A caller whose one connection that worker has; the kernel gives each to any of them."""
        with ExitStack() as tried:
            while True:
                client = tried.enter_context(
                    httpx.Client(
                        base_url=self.url,
                        headers={"authorization": f"Bearer {key}"},
                        limits=httpx.Limits(max_connections=1),
                        timeout=30,
                    )
                )
                stream = client.get("/healthz").extensions["network_stream"]
                if _has_connection(worker, self.port, stream.get_extra_info("client_addr")[1]):
                    yield client
                    return

    def post(self, path: str, key: str, value: Any, **headers: str) -> httpx.Response:
        given = {"authorization": f"Bearer {key}", **headers}
        return httpx.post(self.url + path, json=value, headers=given, timeout=20)

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return httpx.get(self.url + path, headers=headers, timeout=20)

    def chat(self, key: str, model: str = "qwen3-8b", **fields: Any) -> httpx.Response:
        value = {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}
        return self.post("/v1/chat/completions", key, value)


def _has_connection(pid: int, port: int, remote: int) -> bool:
    """Whether the process has the connection from ``remote`` on its side of ``port``."""
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, *fields = line.split()
        if (int(here.partition(":")[2], 16), int(there.partition(":")[2], 16)) == (port, remote):
            inodes.add(f"socket:[{fields[6]}]")
    return any(_target(path) in inodes for path in Path(f"/proc/{pid}/fd").iterdir())


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except FileNotFoundError:
        return ""


@contextmanager
def upstream_thread(answer: Answer | None = None) -> Iterator[Upstream]:
    """An engine's double on a loop of its own."""
    engine = Upstream(answer)
    ready, loops = threading.Event(), []
    stopping: list[asyncio.Event] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        stopping.append(asyncio.Event())
        async with engine:
            ready.set()
            await stopping[0].wait()

    thread = threading.Thread(target=lambda: uvloop.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield engine
    finally:
        loops[0].call_soon_threadsafe(stopping[0].set)
        thread.join(10)
