"""Kills parts of a gateway under load, and compares the ledger with what callers have and engines counted.

    python -m bench.chaos [--seconds 6] [--callers 16] [--json]

Two gateways, the second with two workers, on one PostgreSQL and one Valkey, and two doubles of an engine
that write down what they count, all on loopback and thrown away. A gateway, a worker, PostgreSQL, Valkey and
an engine are killed (SIGKILL) and started again, each in turn and then several at once, while callers go on;
some of those leave in the middle of a stream. Then: has every request that was answered exactly one usage
row; does it say what the engine counted; how far off are rows that are partial or estimated; is any lease of
a key's limits left; and did any request fail but those that were on the killed part at that moment?
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
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from bench import counting
from bench.counting import Counted
from bench.engine import COMPLETION, EVENTS
from bench.processes import load
from bench.support import database, prepare, tell

#: of the second the gateway gets the count with every event
MODELS = ("qwen3-8b-v1", "qwen3-8b-v2")
LIMITS = {"requests_per_minute": 1_000_000, "tokens_per_minute": 2_000_000_000, "concurrent": 200}
#: how long rows may take to reach the database at the end, and leases to go back
SHIP_S = 30
RETURN_S = 10
#: what a caller waits before it calls again after a failure
PAUSE_S = 0.1
#: one stream of so many is left by its caller after some of its events
LEFT_EVERY, LEFT_AFTER = 9, 20
#: a connection that was made to a part this long after its kill was on its way there
ON_THE_WAY_S = 0.1
PARTS = ("gateway", "worker", "postgres", "valkey", "engine")
#: what is killed at the same moment
SCENES = (*((part,) for part in PARTS), ("gateway", "postgres"), ("worker", "valkey", "engine"), PARTS)


@dataclass
class Call:
    gateway: int
    model: str
    stream: bool
    leaves: bool
    began: float
    ended: float = 0.0
    id: str = ""
    #: "" when the whole answer came
    failure: str = ""
    left: bool = False


@dataclass
class Fault:
    """``part`` was away from ``began`` until ``ended``."""

    part: str
    began: float
    ended: float = 0.0


@dataclass
class Row:
    prompt: int
    completion: int
    source: str


Ledger = dict[str, list[Row]]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6, help="of load around each kill")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


class Engine:
    """A double on a port that stays when it is started again, as its journal does."""

    def __init__(self, journal: Path) -> None:
        self.port, self.journal = 0, journal
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-m", "bench.counting", str(self.journal), f"{MODELS[0]}:{self.port}"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
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
            stream = turn // 2 % 2 == 0
            leaves = stream and turn // 4 % LEFT_EVERY == 0
            model = MODELS[turn // 4 % 2]
            call = Call(turn % len(self.urls), model, stream, leaves, time.monotonic())
            try:
                await self._call(client, call)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                call.failure = type(error).__name__
            call.ended = time.monotonic()
            self.calls.append(call)
            await asyncio.sleep(PAUSE_S if call.failure else 0.02)

    async def _call(self, client: aiohttp.ClientSession, call: Call) -> None:
        value: dict[str, Any] = {"model": call.model, "messages": [{"role": "user", "content": "hi"}]}
        if call.stream:
            value |= {"stream": True, "stream_options": {"include_usage": True}}
        async with client.post(
            f"{self.urls[call.gateway]}/v1/chat/completions",
            json=value,
            headers={"authorization": f"Bearer {self.key}"},
        ) as answer:
            call.id = answer.headers.get("x-request-id", "")
            body = b""
            async for data in answer.content.iter_any():
                body += data
                if call.leaves and body.count(b"data: ") >= LEFT_AFTER and answer.status == 200:
                    call.left = True
                    answer.close()
                    return
        if answer.status != 200:
            call.failure = json.loads(body)["error"]["code"]
        elif call.stream and not body.endswith(b"data: [DONE]\n\n"):
            last = body.rstrip().rpartition(b"data: ")[2]
            call.failure = json.loads(last)["error"]["code"]


def explained(call: Call, faults: list[Fault]) -> bool:
    """Whether the request was on a part that was killed while it ran."""
    for fault in faults:
        if call.began > fault.ended or call.ended < fault.began:
            continue
        in_flight = call.began <= fault.began + ON_THE_WAY_S
        if fault.part == "gateway" and call.gateway == 0:
            return True
        # another worker answers from then on
        if fault.part == "worker" and call.gateway == 1 and in_flight:
            return True
        # one that the engine had begun to answer cannot go to another; any other can
        if fault.part == "engine" and in_flight and call.failure == "upstream_cut":
            return True
    return False


class Parts:
    """What is killed, and started again in the order in which each needs the other."""

    def __init__(self, gateways: list[Any], engines: list[Engine]):
        self.gateways, self.engines = gateways, engines

    def kill(self, part: str) -> None:
        from tests.support import services

        if part == "gateway":
            self.gateways[0].stop(signal.SIGKILL)
        elif part == "worker":
            os.kill(self.workers()[0], signal.SIGKILL)
        elif part == "engine":
            self.engines[0].kill()
        else:
            services.kill(part)

    def start_again(self, part: str) -> None:
        from tests.support import services

        if part == "gateway":
            self.gateways[0].start()
        elif part == "engine":
            self.engines[0].start()
        elif part in {"postgres", "valkey"}:
            services.start_again(part)
        # a worker comes back by itself

    def workers(self) -> list[int]:
        pid = self.gateways[1].process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def scenario(chosen: argparse.Namespace, parts: Parts, key: str) -> tuple[list[Call], list[Fault]]:
    callers = Callers([one.url for one in parts.gateways], key)
    thread = threading.Thread(target=lambda: uvloop.run(callers.run(chosen.callers)))
    thread.start()
    faults: list[Fault] = []
    order = ("postgres", "valkey", "engine", "gateway", "worker")
    try:
        for scene in SCENES:
            time.sleep(chosen.seconds / 3)
            now = [Fault(part, time.monotonic()) for part in scene]
            faults += now
            for part in scene:
                parts.kill(part)
            time.sleep(chosen.seconds / 3)
            for part in sorted(scene, key=order.index):
                parts.start_again(part)
            for fault in now:
                fault.ended = time.monotonic()
            time.sleep(chosen.seconds / 3)
    finally:
        callers.stopping = True
        thread.join(70)
    return callers.calls, faults


def ledger() -> Ledger:
    """Request id -> its rows."""
    from django.db import connection

    connection.close()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT request_id::text, prompt_tokens, completion_tokens, tokens_source FROM routes_usage"
        )
        found: Ledger = {}
        for request_id, *rest in cursor.fetchall():
            found.setdefault(request_id, []).append(Row(*rest))
    return found


def settled(calls: list[Call]) -> Ledger:
    """The ledger once nothing is missing of it, or after SHIP_S."""
    limit = time.monotonic() + SHIP_S
    while True:
        rows = ledger()
        if all(call.failure or call.id in rows for call in calls) or time.monotonic() > limit:
            return rows
        time.sleep(1)


def leases_left() -> int:
    """Slots that gateways still hold though nothing is in progress, once they had time to give them back."""
    from kvadmin import valkey
    from routes.gateway.leases import outstanding

    limit = time.monotonic() + RETURN_S
    while True:
        left = sum(outstanding(valkey.client()).values())
        if not left or time.monotonic() > limit:
            return left
        time.sleep(0.5)


def error_of(pairs: list[tuple[int, int]]) -> float | None:
    """How far the first numbers are from the second, as a part of these; None of nothing."""
    wanted = sum(right for _, right in pairs)
    return round(sum(abs(left - right) for left, right in pairs) / wanted, 6) if wanted else None


def compared(rows: Ledger, counts: dict[str, Counted], answered: list[Call]) -> dict[str, Any]:
    """Rows beside what the engines counted, by where a row's tokens come from."""
    known = {name: found[0] for name, found in rows.items() if name in counts}
    whole = {name for name, row in known.items() if row.source == "engine"} | {
        call.id for call in answered if call.id in known
    }
    pairs = [
        (ours, theirs)
        for name in whole
        for ours, theirs in (
            (known[name].prompt, counts[name].prompt),
            (known[name].completion, counts[name].completion),
        )
    ]
    figures: dict[str, Any] = {
        "token_error": error_of(pairs),
        "rows_of_the_engines_count": len(whole),
        "rows_unlike_the_engine": sum(
            (known[name].prompt, known[name].completion) != (counts[name].prompt, counts[name].completion)
            or not counts[name].whole
            for name in whole
        ),
    }
    for source in ("partial", "estimated"):
        some = [name for name, row in known.items() if row.source == source and name not in whole]
        figures[f"rows_{source}"] = len(some)
        figures[f"{source}_answer_error"] = error_of(
            [(known[name].completion, counts[name].completion) for name in some]
        )
    figures["counted_without_a_row"] = sum(one.whole and name not in rows for name, one in counts.items())
    return figures


def report(
    chosen: argparse.Namespace,
    calls: list[Call],
    faults: list[Fault],
    rows: Ledger,
    counts: dict[str, Counted],
    leases: int,
) -> None:
    answered = [call for call in calls if not call.failure and not call.left]
    left = [call for call in calls if call.left]
    failed = [call for call in calls if call.failure]
    elsewhere = [call for call in failed if not explained(call, faults)]
    told = {call.id: EVENTS if call.stream else COMPLETION for call in answered}
    figures = {
        "answered": len(answered),
        "rows_missing": sum(call.id not in rows for call in answered + left),
        "rows_doubled": sum(len(found) > 1 for found in rows.values()),
        **compared(rows, counts, answered),
        "rows_unlike_the_caller": sum(
            tokens != rows[name][0].completion for name, tokens in told.items() if name in rows
        ),
        "leases_left": leases,
        "failed_elsewhere": len(elsewhere),
        "failed_on_the_killed_part": len(failed) - len(elsewhere),
        "left_by_their_caller": len(left),
        "rows": len(rows),
        "load": load(),
    }
    lines = [load()]
    lines += [f"{fault.part} was away for {fault.ended - fault.began:.1f} s" for fault in faults]
    lines += [
        "{answered} requests were answered, {left_by_their_caller} were left by their caller, and "
        "{failed_on_the_killed_part} failed on what was killed".format(**figures),
        f"{len(elsewhere)} more failed {dict(Counter(call.failure for call in elsewhere)) or ''}",
        "{rows} rows: {rows_missing} missing, {rows_doubled} doubled".format(**figures),
        "{rows_of_the_engines_count} rows have the engine's count: off by {token_error}, "
        "{rows_unlike_the_engine} differ".format(**figures),
        "{rows_partial} rows are partial, their answers' tokens off by {partial_answer_error}; "
        "{rows_estimated} estimated, off by {estimated_answer_error}".format(**figures),
        "{counted_without_a_row} requests were at their end in an engine and have no row: their gateway was "
        "killed before their caller had the last byte".format(**figures),
        f"leases left: {leases}",
    ]
    tell(figures, lines, chosen.json)


def measure(chosen: argparse.Namespace, folder: Path) -> None:
    from tests.support.gateway_process import GatewayProcess
    from tests.support.route_factories import KeyFactory, OutsideTargetFactory, RouteFactory

    engines = [Engine(folder / f"engine-{number}") for number in range(2)]
    gateways = []
    try:
        for model in MODELS:
            route = RouteFactory(name=model, continuous_usage=model == MODELS[1])
            for engine in engines:
                OutsideTargetFactory(route=route, base_url=f"http://127.0.0.1:{engine.port}", model=MODELS[0])
        key = KeyFactory(**LIMITS).secret
        for number in range(2):
            home = folder / f"gateway-{number}"
            home.mkdir()
            gateways.append(GatewayProcess(home, workers=number + 1))
            gateways[-1].start()
        calls, faults = scenario(chosen, Parts(gateways, engines), key)
        rows = settled(calls)
        leases = leases_left()
    finally:
        for gateway in gateways:
            if gateway.process and gateway.process.poll() is None:
                gateway.stop()
        for engine in engines:
            engine.kill()
    # rows that a worker which was killed left behind came with the one after it
    counts: dict[str, Counted] = {}
    for engine in engines:
        for name, one in counting.read(engine.journal).items():
            if name not in counts or one.whole or not counts[name].whole:
                counts[name] = one
    report(chosen, calls, faults, ledger() or rows, counts, leases)


def main() -> None:
    chosen = options()
    # what PostgreSQL has committed has to outlive its kill
    os.environ["KVADMIN_TEST_DURABLE"] = "1"
    prepare(valkey=True)
    with tempfile.TemporaryDirectory(prefix="kvadmin-chaos-") as folder, database():
        measure(chosen, Path(folder))


if __name__ == "__main__":
    main()
