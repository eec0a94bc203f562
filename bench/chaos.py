"""Kills parts of a gateway under load, and compares the ledger with what callers have.

    python -m bench.chaos [--seconds 6] [--callers 16] [--json]

Two gateways on one PostgreSQL and one Valkey, two doubles of an engine, all on loopback and thrown away. In
turn a gateway, PostgreSQL, Valkey and an engine are killed (SIGKILL) and started again, while callers go on.
Then: has every request that was answered exactly one usage row, with the engine's count; is any lease of a
key's limits left; and did any request fail but those that were on the killed part at that moment?
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from bench.engine import COMPLETION, EVENTS, PROMPT
from bench.processes import load
from bench.support import database, prepare, tell

MODEL = "qwen3-8b-v1"
LIMITS = {"requests_per_minute": 1_000_000, "tokens_per_minute": 2_000_000_000, "concurrent": 200}
#: how long rows may take to reach the database at the end
SHIP_S = 30
#: what a caller waits before it calls again after a failure
PAUSE_S = 0.1


@dataclass
class Call:
    gateway: int
    began: float
    stream: bool
    ended: float = 0.0
    id: str = ""
    #: "" when the whole answer came
    failure: str = ""
    tokens: tuple[int, int] = (0, 0)


@dataclass
class Fault:
    """``part`` was away from ``began`` until ``ended``."""

    part: str
    began: float
    ended: float = 0.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6, help="of load around each kill")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


class Engine:
    """A double on a port that stays when it is started again."""

    def __init__(self) -> None:
        self.port = 0
        self.start()

    def start(self) -> None:
        word = f"{MODEL}:{self.port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.engine", word], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        (self.port,) = json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Callers:
    """Each calls one gateway after the other, whole answers and streams by turns."""

    def __init__(self, urls: list[str], key: str):
        self.urls, self.key = urls, key
        self.calls: list[Call] = []
        self.stopping = False

    async def run(self, count: int) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
            await asyncio.gather(*(self._caller(client, number) for number in range(count)))

    async def _caller(self, client: aiohttp.ClientSession, number: int) -> None:
        turn = number
        while not self.stopping:
            turn += 1
            call = Call(turn % len(self.urls), time.monotonic(), stream=turn // 2 % 2 == 0)
            await self._call(client, call)
            call.ended = time.monotonic()
            self.calls.append(call)
            await asyncio.sleep(PAUSE_S if call.failure else 0.02)

    async def _call(self, client: aiohttp.ClientSession, call: Call) -> None:
        value: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
        if call.stream:
            value |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            async with client.post(
                f"{self.urls[call.gateway]}/v1/chat/completions",
                json=value,
                headers={"authorization": f"Bearer {self.key}"},
            ) as answer:
                call.id = answer.headers.get("x-request-id", "")
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            call.failure = type(error).__name__
            return
        if answer.status != 200:
            call.failure = json.loads(body)["error"]["code"]
        elif call.stream and not body.endswith(b"data: [DONE]\n\n"):
            last = body.rstrip().rpartition(b"data: ")[2]
            call.failure = json.loads(last)["error"]["code"]
        call.tokens = (PROMPT, EVENTS if call.stream else COMPLETION)


def explained(call: Call, faults: list[Fault]) -> bool:
    """Whether the request was on a part that was killed while it ran."""
    for fault in faults:
        if call.began > fault.ended or call.ended < fault.began:
            continue
        if fault.part == f"gateway {call.gateway}":
            return True
        # one that the engine had begun to answer cannot go to another; any other can
        if fault.part == "engine" and call.began <= fault.began and call.failure == "upstream_cut":
            return True
    return False


def scenario(
    chosen: argparse.Namespace, gateways: list[Any], engines: list[Engine], key: str
) -> tuple[list[Call], list[Fault]]:
    from tests.support import services

    callers = Callers([one.url for one in gateways], key)
    thread = threading.Thread(target=lambda: uvloop.run(callers.run(chosen.callers)))
    thread.start()
    faults: list[Fault] = []

    def away(part: str, kill: Callable[[], Any], again: Callable[[], Any]) -> None:
        time.sleep(chosen.seconds / 3)
        fault = Fault(part, time.monotonic())
        faults.append(fault)
        kill()
        time.sleep(chosen.seconds / 3)
        again()
        fault.ended = time.monotonic()
        time.sleep(chosen.seconds / 3)

    try:
        away("gateway 0", lambda: gateways[0].stop(signal.SIGKILL), gateways[0].start)
        for name in ("postgres", "valkey"):
            away(name, partial(services.kill, name), partial(services.start_again, name))
        away("engine", engines[0].kill, engines[0].start)
    finally:
        callers.stopping = True
        thread.join(70)
    return callers.calls, faults


def ledger() -> dict[str, list[tuple[int, int, str]]]:
    """Request id -> its rows: prompt and completion tokens and where they come from."""
    from django.db import connection

    connection.close()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT request_id::text, prompt_tokens, completion_tokens, tokens_source FROM routes_usage"
        )
        found: dict[str, list[tuple[int, int, str]]] = {}
        for id, *rest in cursor.fetchall():
            found.setdefault(id, []).append(tuple(rest))
    return found


def settled(calls: list[Call]) -> dict[str, list[tuple[int, int, str]]]:
    """The ledger once nothing is missing of it, or after SHIP_S."""
    limit = time.monotonic() + SHIP_S
    while True:
        rows = ledger()
        if all(call.failure or call.id in rows for call in calls) or time.monotonic() > limit:
            return rows
        time.sleep(1)


def report(
    chosen: argparse.Namespace,
    calls: list[Call],
    faults: list[Fault],
    rows: dict[str, list[tuple[int, int, str]]],
    leases: int,
) -> None:
    answered = [call for call in calls if not call.failure]
    failed = [call for call in calls if call.failure]
    elsewhere = [call for call in failed if not explained(call, faults)]
    wanted = sum(sum(call.tokens) for call in answered)
    wrong = 0
    for call in answered:
        found = rows.get(call.id, [])
        wrong += abs(sum(call.tokens) - sum(row[0] + row[1] for row in found[:1]))
    other = [row for found in rows.values() for row in found if row[2] not in {"engine", ""}]
    figures = {
        "answered": len(answered),
        "rows_missing": sum(call.id not in rows for call in answered),
        "rows_doubled": sum(len(found) > 1 for found in rows.values()),
        "token_error": round(wrong / wanted, 6) if wanted else None,
        "leases_left": leases,
        "failed_elsewhere": len(elsewhere),
        "failed_on_the_killed_part": len(failed) - len(elsewhere),
        "rows": len(rows),
        "rows_partial_or_estimated": len(other),
        "load": load(),
    }
    kinds: dict[str, int] = {}
    for call in elsewhere:
        kinds[call.failure] = kinds.get(call.failure, 0) + 1
    lines = [load()]
    lines += [f"{fault.part} was away for {fault.ended - fault.began:.1f} s" for fault in faults]
    lines += [
        f"{len(answered)} requests were answered and {len(failed)} failed",
        f"of those {len(elsewhere)} had nothing to do with the part that was killed {kinds or ''}",
        f"{len(rows)} rows: {figures['rows_missing']} missing, {figures['rows_doubled']} doubled",
        f"tokens off by {figures['token_error']:.4%}; {len(other)} rows are partial or estimated",
        f"leases left: {leases}",
    ]
    tell(figures, lines, chosen.json)


def measure(chosen: argparse.Namespace, folder: Path) -> None:
    from kvadmin import valkey
    from routes.gateway.leases import LESSEE_TTL_MS, outstanding
    from tests.support.gateway_process import GatewayProcess
    from tests.support.route_factories import KeyFactory, OutsideTargetFactory, RouteFactory

    engines = [Engine(), Engine()]
    gateways = []
    try:
        route = RouteFactory(name=MODEL)
        for engine in engines:
            OutsideTargetFactory(route=route, base_url=f"http://127.0.0.1:{engine.port}", model=MODEL)
        key = KeyFactory(**LIMITS).secret
        for number in range(2):
            home = folder / f"gateway-{number}"
            home.mkdir()
            gateways.append(GatewayProcess(home))
            gateways[-1].start()
        calls, faults = scenario(chosen, gateways, engines, key)
        rows = settled(calls)
        for gateway in gateways:
            gateway.stop()
        time.sleep(LESSEE_TTL_MS / 1000 + 0.5)
        leases = sum(outstanding(valkey.client()).values())
    finally:
        for gateway in gateways:
            if gateway.process and gateway.process.poll() is None:
                gateway.process.kill()
        for engine in engines:
            engine.kill()
    report(chosen, calls, faults, rows, leases)


def main() -> None:
    chosen = options()
    # what PostgreSQL has committed has to outlive its kill
    os.environ["KVADMIN_TEST_DURABLE"] = "1"
    prepare(valkey=True)
    with tempfile.TemporaryDirectory(prefix="kvadmin-chaos-") as folder, database():
        measure(chosen, Path(folder))


if __name__ == "__main__":
    main()
