"""Ten thousand connections that nobody uses at the moment, and the requests of others beside them."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator

import httpx
import pytest

from bench.processes import memory_mb
from tests.routes.usage.support import clear, rows
from tests.support.gateway_process import GatewayProcess, upstream_thread, wait_for
from tests.support.route_factories import KeyFactory, OutsideTargetFactory, RouteFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.django_db(transaction=True)]

HELD = 10_000
#: what a process may have open when nobody has set it up for more
USUAL = 1024
#: of memory, for each
MOST_KB = 20
ASK = b"GET /healthz HTTP/1.1\r\nhost: gateway\r\n\r\n"


@pytest.fixture
def files() -> Iterator[None]:
    """The limit of open files is the usual one for the gateway, and high enough for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < HELD + USUAL:
        pytest.fail(
            f"This machine lets a process have {hard} open files (ulimit -Hn); {HELD + USUAL} are needed."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def asked(connection: socket.socket) -> None:
    connection.sendall(ASK)
    answer = b""
    while b'{"status":"ok"}' not in answer:
        data = connection.recv(4096)
        assert data, "it was closed"
        answer += data
    assert answer.startswith(b"HTTP/1.1 200 ")


def connections(gateway: GatewayProcess) -> int:
    page = httpx.get(f"{gateway.url}/metrics").text
    return int(float(page.partition("\nkvadmin_gateway_connections ")[2].partition("\n")[0]))


def test_ten_thousand_idle_connections_are_held_beside_requests(transactional_db, files, tmp_path):
    held: list[socket.socket] = []
    with upstream_thread() as engine:
        OutsideTargetFactory(route=RouteFactory(name="qwen3-8b"), base_url=engine.url)
        key = KeyFactory().secret
        gateway = GatewayProcess(tmp_path).start()
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            # what is kept for every gateway is there before it is measured
            for _ in range(50):
                assert gateway.chat(key).status_code == 200
            pids = [gateway.process.pid]
            before = memory_mb(pids)
            for _ in range(HELD):
                held.append(socket.create_connection(("127.0.0.1", gateway.port), timeout=60))
                asked(held[-1])
            wait_for(lambda: connections(gateway) > HELD)
            each_kb = (memory_mb(pids) - before) * 1024 / HELD
            for _ in range(50):
                assert gateway.chat(key).status_code == 200
            # they are held, not only counted
            for connection in held[:: HELD // 200]:
                asked(connection)
            assert each_kb < MOST_KB
            for connection in held:
                connection.close()
            wait_for(lambda: connections(gateway) == 1)
            wait_for(lambda: len(rows("SELECT 1 FROM routes_usage")) == 100)
        finally:
            for connection in held:
                connection.close()
            gateway.stop()
    clear()
