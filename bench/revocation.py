"""How long after the commit every worker of two gateways knows of a key that was revoked, or issued.

    python -m bench.revocation [--count 20] [--rate 100] [--json]

Two gateways of two workers each on one PostgreSQL and one Valkey, under load (requests a second of each
gateway, and a tenth as many streams). Keys are revoked and issued by the console's own actions. Each worker
is asked in turn, over a connection of its own, until it refuses the key or takes it; the time of the last one
counts, with its answer, so a few milliseconds of it are the asking.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from bench.load import Result, Run, request
from bench.processes import load
from bench.support import database, prepare, tell

MODEL = "qwen3-8b-v1"
LIMITS = {"requests_per_minute": 1_000_000, "tokens_per_minute": 2_000_000_000, "concurrent": 200}
CONNECTIONS = 16
#: more is a fault
LIMIT_S = 30
#: between two keys, so that each is learned by a worker at rest
PAUSE_S = 0.2


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="keys to revoke, and to issue")
    parser.add_argument("--rate", type=float, default=100, help="requests a second of each gateway")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


class Load:
    """Callers of each gateway, on a thread of their own, until ``end``."""

    def __init__(self, ports: list[int], key: str, rate: float):
        whole, stream = request(MODEL, key), request(MODEL, key, stream=True)
        self.runs = [Run(port, whole, CONNECTIONS, rate=rate) for port in ports]
        self.runs += [Run(port, stream, CONNECTIONS, rate=rate / 10) for port in ports]
        self.results: list[Result] = []
        self.thread = threading.Thread(target=lambda: uvloop.run(self._go()))
        self.stopping: asyncio.Event | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.begun = threading.Event()

    async def _go(self) -> None:
        self.loop, self.stopping = asyncio.get_running_loop(), asyncio.Event()
        self.begun.set()
        tasks = [asyncio.create_task(run.go(3600)) for run in self.runs]
        await self.stopping.wait()
        for run, task in zip(self.runs, tasks, strict=True):
            run.stopping = True
            self.results.append(run.result)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __enter__(self) -> Load:
        self.thread.start()
        self.begun.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self.loop
        assert self.stopping
        self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join()


@dataclass
class Worker:
    client: Any

    def takes(self, secret: str) -> bool:
        answer = self.client.get("/v1/models", headers={"authorization": f"Bearer {secret}"})
        if answer.status_code not in {200, 401}:
            raise RuntimeError(f"a worker answered {answer.status_code}: {answer.text[:300]}")
        return answer.status_code == 200


def seconds_until(workers: list[Worker], secret: str, taken: bool, since: float) -> float:
    """Until the last worker takes the key, or refuses it, as wanted."""
    left = list(workers)
    while left:
        left = [worker for worker in left if worker.takes(secret) is not taken]
        if time.monotonic() - since > LIMIT_S:
            raise RuntimeError(f"{len(left)} of {len(workers)} workers do not know it after {LIMIT_S} s")
    return time.monotonic() - since


def committed(action: Any) -> tuple[Any, float]:
    """What the action gave, and the moment after its commit."""
    from django.db import transaction

    moments: list[float] = []
    with transaction.atomic():
        found = action.run()
        transaction.on_commit(lambda: moments.append(time.monotonic()))
    return found, moments[0]


def keys(count: int, business: Any, workers: list[Worker]) -> tuple[list[float], list[float]]:
    """Seconds to issue each, and to revoke each."""
    from kvadmin.actions import Actor
    from routes.actions.issue_key import IssueKey
    from routes.actions.revoke_key import RevokeKey

    actor = Actor(source="command")
    issued, revoked, made = [], [], []
    for number in range(count):
        key, since = committed(IssueKey(actor, business, f"bench-{number}"))
        issued.append(seconds_until(workers, key.secret, True, since))
        made.append(key)
        time.sleep(PAUSE_S)
    for key in made:
        _, since = committed(RevokeKey(actor, key.key))
        revoked.append(seconds_until(workers, key.secret, False, since))
        time.sleep(PAUSE_S)
    return issued, revoked


def measure(chosen: argparse.Namespace, folder: Path) -> None:
    from tests.support.gateway_process import GatewayProcess
    from tests.support.route_factories import BusinessFactory, KeyFactory, OutsideTargetFactory, RouteFactory

    engine = subprocess.Popen(
        [sys.executable, "-m", "bench.engine", MODEL], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    gateways: list[GatewayProcess] = []
    try:
        (port,) = json.loads(engine.stdout.readline())
        OutsideTargetFactory(route=RouteFactory(name=MODEL), base_url=f"http://127.0.0.1:{port}", model=MODEL)
        business = BusinessFactory()
        own = KeyFactory(business=business, **LIMITS).secret
        for number in range(2):
            home = folder / f"gateway-{number}"
            home.mkdir()
            gateways.append(GatewayProcess(home, workers=2).start())
        with ExitStack() as stack:
            workers = [
                Worker(stack.enter_context(one.caller_of(worker, own)))
                for one in gateways
                for worker in one.workers()
            ]
            callers = stack.enter_context(Load([one.port for one in gateways], own, chosen.rate))
            issued, revoked = keys(chosen.count, business, workers)
    finally:
        for gateway in gateways:
            gateway.stop()
        engine.kill()
        engine.wait()
    report(chosen, issued, revoked, callers.results)


def report(
    chosen: argparse.Namespace, issued: list[float], revoked: list[float], results: list[Result]
) -> None:
    answered = sum(result.answered for result in results)
    failed = sum(result.failed + result.cut for result in results)
    said = next((result.said for result in results if result.said), "")
    figures = {
        "revoked_p50_s": round(median(revoked), 4),
        "revoked_worst_s": round(max(revoked), 4),
        "issued_p50_s": round(median(issued), 4),
        "issued_worst_s": round(max(issued), 4),
        "keys": chosen.count,
        "answered": answered,
        "failed": failed,
        "load": load(),
    }
    lines = [
        load(),
        f"meanwhile {answered} requests were answered and {failed} failed {said}",
        f"revoked: the last worker refuses after {median(revoked):.3f} s (p50), {max(revoked):.3f} s (worst)",
        f"issued: the last worker takes it after {median(issued):.3f} s (p50), {max(issued):.3f} s (worst)",
    ]
    tell(figures, lines, chosen.json)


def main() -> None:
    chosen = options()
    prepare(valkey=True)
    with tempfile.TemporaryDirectory(prefix="kvadmin-revocation-") as folder, database():
        measure(chosen, Path(folder))


if __name__ == "__main__":
    main()
