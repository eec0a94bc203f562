"""What the gateway costs, beside other proxies before the same engine.

    python -m bench.gateway [--seconds 4] [--rounds 3] [--json]
    python -m bench.gateway --install            # vllm-router and LiteLLM, into var/bench-peers
    python -m bench.gateway --soak 600           # memory under steady load
    python -m bench.gateway --streams 2000       # memory of that many streams at once
    python -m bench.gateway --workers 2          # two workers beside one

The gateway is the process that `manage.py gateway` runs, with a key that has every limit, usage, metrics and
the access log on, on a throw-away PostgreSQL and Valkey. The engine is a double (bench/engine.py) that
answers at once, or streams 64 events 5 ms apart. Printed: processor time of each proxy's whole process tree
per request and per streamed event, the latency it adds at a rate below saturation, and its memory. Rounds of
all proxies take turns, so that what else the machine does meets them alike; the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from bench.load import Result, Run, request
from bench.processes import connections, cpu_s, load, memory_mb, tree
from bench.support import database, prepare, tell

MODEL, RENAMED, SERVED = "qwen3-8b-v1", "qwen3-8b-v2", "Qwen/Qwen3-8B"
#: no limit stops the load, and every one is counted
LIMITS = {
    "requests_per_minute": 100_000_000,
    "tokens_per_minute": 2_000_000_000,
    "concurrent": 100_000,
    "monthly_tokens": 10**15,
}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--rate", type=float, default=100, help="requests per second when latency is measured"
    )
    parser.add_argument("--connections", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--peers", nargs="*", default=["nginx", "vllm-router", "litellm"])
    parser.add_argument("--workers", type=int, default=1, help="2: compare two workers with one")
    parser.add_argument("--soak", type=float, default=0, help="seconds of steady load; how memory grows")
    parser.add_argument("--streams", type=int, default=0, help="so many streams at once; memory of each")
    parser.add_argument("--install", action="store_true", help="install the peers that are missing, and end")
    parser.add_argument("--hold", action="store_true", help="one endless load on the gateway, for a profiler")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


@contextmanager
def engine(*names: str) -> Iterator[list[int]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.engine", *names], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def gateway(home: Path, *, workers: int = 1) -> Iterator[Any]:
    from tests.support.gateway_process import GatewayProcess

    home.mkdir()
    running = GatewayProcess(home, workers=workers).start()
    try:
        yield running
    finally:
        running.stop()


@dataclass
class Proxy:
    name: str
    port: int
    pid: int
    key: str
    #: case -> one figure for each round: microseconds of processor time per request or per event
    cpu: dict[str, list[float]] = field(default_factory=dict)
    per_second: dict[str, list[float]] = field(default_factory=dict)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    memory_mb: float = 0.0

    def median(self, case: str) -> float:
        return statistics.median(self.cpu[case]) if self.cpu.get(case) else float("nan")


def drive(
    proxy: Proxy, model: str, count: int, seconds: float, *, rate: float = 0.0, **fields: Any
) -> tuple[Result, float]:
    """(what came back, processor seconds of the proxy)."""

    async def work() -> tuple[Result, float]:
        pids = tree(proxy.pid) if proxy.pid else []
        before = cpu_s(pids)
        run = Run(proxy.port, request(model, proxy.key, **fields), count, rate=rate)
        return await run.go(seconds), cpu_s(pids) - before

    result, spent = uvloop.run(work())
    if result.failed or result.cut or not result.answered:
        raise SystemExit(f"{proxy.name}: {result.failed} failed, {result.cut} were cut: {result.said}")
    return result, spent


def measure(proxy: Proxy, case: str, model: str, count: int, seconds: float, *, stream: bool) -> None:
    result, spent = drive(proxy, model, count, seconds, stream=stream)
    done = result.events if stream else result.answered
    # LiteLLM adds one of its own
    if stream and not 65 <= result.events / result.answered <= 66:
        raise SystemExit(f"{proxy.name}: {result.events} events in {result.answered} streams")
    proxy.cpu.setdefault(case, []).append(1e6 * spent / done)
    proxy.per_second.setdefault(case, []).append(result.answered / result.seconds)


def latency(proxy: Proxy, rate: float, seconds: float) -> None:
    result, _spent = drive(proxy, MODEL, 32, seconds, rate=rate)
    proxy.p50.append(1000 * result.quantile(0.5))
    proxy.p99.append(1000 * result.quantile(0.99))


def routes(ports: list[int]) -> str:
    """Rows of a key and of both routes; the key's text."""
    from tests.support.route_factories import KeyFactory, OutsideTargetFactory, RouteFactory

    for name, port, served in ((MODEL, ports[0], MODEL), (RENAMED, ports[1], SERVED)):
        route = RouteFactory(name=name)
        OutsideTargetFactory(route=route, base_url=f"http://127.0.0.1:{port}", model=served)
    return KeyFactory(**LIMITS).secret


def compare(chosen: argparse.Namespace, folder: Path) -> None:
    from bench import peers

    lines = [load()]
    left_out = [said for name in chosen.peers if (said := peers.missing(name))]
    with ExitStack() as stack:
        ports = stack.enter_context(engine(MODEL, SERVED))
        key = routes(ports)
        running = stack.enter_context(gateway(folder / "gateway"))
        proxies = [
            Proxy("gateway", running.port, running.process.pid, key),
            Proxy("direct", ports[0], 0, key),
        ]
        for name in chosen.peers:
            if not peers.missing(name):
                peer = stack.enter_context(peers.MAKERS[name](ports[0], MODEL, folder))
                proxies.append(Proxy(name, peer.port, peer.pid, peer.key))
        ours = proxies[0]
        for proxy in proxies:
            # what is made at first use is not what a request costs
            drive(proxy, MODEL, 32, 1)
        for _round in range(chosen.rounds):
            for proxy in proxies:
                for count in chosen.connections:
                    if proxy.name == "litellm" and count > 32:
                        continue
                    for case, stream in (("request", False), ("event", True)):
                        measure(proxy, f"{case} {count}", MODEL, count, chosen.seconds, stream=stream)
                        if proxy is ours:
                            renamed = f"renamed {case} {count}"
                            measure(proxy, renamed, RENAMED, count, chosen.seconds, stream=stream)
            for proxy in proxies:
                latency(proxy, 10 if proxy.name == "litellm" else chosen.rate, chosen.seconds)
        for proxy in proxies:
            proxy.memory_mb = memory_mb(tree(proxy.pid)) if proxy.pid else 0.0
    report(chosen, proxies, [*left_out, *lines, f"at the end {load()}"])


def report(chosen: argparse.Namespace, proxies: list[Proxy], lines: list[str]) -> None:
    by_name = {proxy.name: proxy for proxy in proxies}
    ours, direct = by_name["gateway"], by_name["direct"]
    lines.append("processor time in microseconds, the median of the rounds:")
    shown = [f"{what} {count}" for count in chosen.connections for what in ("request", "event")]
    lines.append(f"{'':24}" + "".join(f"{case:>14}" for case in shown) + f"{'memory':>12}")
    for proxy in proxies:
        for prefix, name in (("", proxy.name), ("renamed ", f"{proxy.name}, renamed")):
            cells = [proxy.median(prefix + case) for case in shown]
            if proxy.pid and any(cell == cell for cell in cells):
                lines.append(
                    f"{name:24}"
                    + "".join(f"{cell:14.1f}" if cell == cell else f"{'-':>14}" for cell in cells)
                    + (f"{proxy.memory_mb:9.0f} MB" if not prefix else "")
                )
    lines.append(f"latency in ms at 32 connections, {chosen.rate:g} requests a second (LiteLLM: 10):")
    for proxy in proxies:
        p50, p99 = statistics.median(proxy.p50), statistics.median(proxy.p99)
        base50, base99 = statistics.median(direct.p50), statistics.median(direct.p99)
        lines.append(
            f"{proxy.name:24} p50 {p50:7.2f} p99 {p99:7.2f}"
            + (f", added {p50 - base50:6.2f} and {p99 - base99:6.2f}" if proxy is not direct else "")
        )
    figures: dict[str, Any] = {
        "added_p50_ms": round(statistics.median(ours.p50) - statistics.median(direct.p50), 3),
        "added_p99_ms": round(statistics.median(ours.p99) - statistics.median(direct.p99), 3),
        "cpu_us": {
            proxy.name: {case: round(proxy.median(case), 1) for case in proxy.cpu}
            for proxy in proxies
            if proxy.pid
        },
        "answers_per_second": {
            proxy.name: {case: round(statistics.median(found)) for case, found in proxy.per_second.items()}
            for proxy in proxies
        },
        "memory_mb": {proxy.name: round(proxy.memory_mb, 1) for proxy in proxies if proxy.pid},
        "load": load(),
    }
    first = chosen.connections[0]
    for name, case, against, peer in (
        ("ratio_vllm_router", "request", "request", "vllm-router"),
        ("ratio_vllm_router_stream", "event", "event", "vllm-router"),
        ("ratio_vllm_router_stream_rewritten", "renamed event", "event", "vllm-router"),
        ("ratio_litellm", "request", "request", "litellm"),
        ("ratio_nginx", "request", "request", "nginx"),
        ("ratio_nginx_stream", "event", "event", "nginx"),
    ):
        if peer in by_name:
            ratio = ours.median(f"{case} {first}") / by_name[peer].median(f"{against} {first}")
            figures[name] = round(ratio, 4)
            lines.append(f"{name}: {ratio:.4f}")
    tell(figures, lines, chosen.json)


def two_workers(chosen: argparse.Namespace, folder: Path) -> None:
    """Processor time per request of several workers beside one's, and how connections are shared."""
    with ExitStack() as stack:
        ports = stack.enter_context(engine(MODEL, SERVED))
        key = routes(ports)
        proxies = []
        for count in (1, chosen.workers):
            running = stack.enter_context(gateway(folder / f"gateway-{count}", workers=count))
            proxies.append(Proxy(f"{count}", running.port, running.process.pid, key))
        shares: list[list[int]] = []
        for proxy in proxies:
            drive(proxy, MODEL, 32, 2)
        for _round in range(chosen.rounds):
            for proxy in proxies:
                measure(proxy, "request", MODEL, 256, chosen.seconds, stream=False)
            shares.append(_shared(proxies[1], chosen.workers))
    one, several = (proxy.median("request") for proxy in proxies)
    least = min(min(share) / sum(share) for share in shares)
    tell(
        {
            "cpu_us_one": round(one, 1),
            "cpu_us_several": round(several, 1),
            "ratio_workers": round(several / one, 3),
            "least_share": round(least, 3),
            "shares": shares,
            "load": load(),
        },
        [
            load(),
            f"one worker: {one:.1f} us per request; {chosen.workers}: {several:.1f} us ({several / one:.2f})",
            f"256 connections are shared {', '.join(map(str, shares))}; the least share is {least:.0%}",
        ],
        chosen.json,
    )


def _shared(proxy: Proxy, workers: int) -> list[int]:
    async def work() -> list[int]:
        run = Run(proxy.port, request(MODEL, proxy.key), 256, rate=200)
        going = asyncio.create_task(run.go(1.5))
        await asyncio.sleep(1.0)
        found = connections([pid for pid in tree(proxy.pid) if pid != proxy.pid], proxy.port)
        await going
        return found

    return uvloop.run(work())


def many_streams(chosen: argparse.Namespace, folder: Path) -> None:
    """Memory of so many streams at once, twice: the second time shows what does not come back."""

    async def hold(port: int, key: str, pid: int) -> list[float]:
        pids = tree(pid)
        data = request(MODEL, key, stream=True, bench_events=16, bench_pause_ms=1000)
        run = Run(port, data, chosen.streams)
        going = asyncio.create_task(run.go(2))
        seen = [memory_mb(pids)]
        while not going.done():
            await asyncio.sleep(1)
            seen.append(memory_mb(pids))
        result = await going
        if result.failed or result.cut or result.answered != chosen.streams:
            raise SystemExit(f"{result.answered} streams ended, {result.failed} failed, {result.cut} cut")
        return seen

    with ExitStack() as stack:
        ports = stack.enter_context(engine(MODEL, SERVED))
        key = routes(ports)
        running = stack.enter_context(gateway(folder / "gateway"))
        drive(Proxy("gateway", running.port, running.process.pid, key), MODEL, 32, 2)
        first = uvloop.run(hold(running.port, key, running.process.pid))
        time.sleep(8)
        between = memory_mb(tree(running.process.pid))
        second = uvloop.run(hold(running.port, key, running.process.pid))
    each = 1024 * (max(first) - first[0]) / chosen.streams
    tell(
        {
            "streams": chosen.streams,
            "kb_per_stream": round(each, 1),
            "memory_mb_before": round(first[0], 1),
            "memory_mb_at_most": round(max(first), 1),
            "memory_mb_between": round(between, 1),
            "memory_mb_second_time": round(max(second), 1),
            "load": load(),
        },
        [
            load(),
            f"{chosen.streams} streams: {first[0]:.0f} MB, then {max(first):.0f} at most, {each:.1f} KB each",
            f"afterwards {between:.0f} MB, and at most {max(second):.0f} MB with as many again",
        ],
        chosen.json,
    )


def soak(chosen: argparse.Namespace, folder: Path) -> None:
    """Memory under steady load, whole answers and streams at once."""

    async def work(port: int, key: str, pid: int) -> tuple[list[float], list[Result]]:
        pids = tree(pid)
        runs = [
            Run(port, request(MODEL, key), 32, rate=chosen.rate),
            Run(port, request(RENAMED, key), 32, rate=chosen.rate),
            Run(port, request(MODEL, key, stream=True), 8, rate=8),
            Run(port, request(RENAMED, key, stream=True), 8, rate=8),
        ]
        going = [asyncio.create_task(run.go(chosen.soak)) for run in runs]
        seen = []
        while not all(task.done() for task in going):
            await asyncio.sleep(2)
            seen.append(memory_mb(pids))
        return seen, [await task for task in going]

    with ExitStack() as stack:
        ports = stack.enter_context(engine(MODEL, SERVED))
        key = routes(ports)
        running = stack.enter_context(gateway(folder / "gateway"))
        seen, results = uvloop.run(work(running.port, key, running.process.pid))
    failed = sum(result.failed + result.cut for result in results)
    if failed:
        raise SystemExit(f"{failed} requests failed")
    quarter = max(1, len(seen) // 4)
    early, late = statistics.median(seen[quarter : 2 * quarter]), statistics.median(seen[-quarter:])
    answered = sum(result.answered for result in results)
    tell(
        {
            "seconds": chosen.soak,
            "answered": answered,
            "memory_mb_second_quarter": round(early, 2),
            "memory_mb_last_quarter": round(late, 2),
            "growth_mb": round(late - early, 2),
            "load": load(),
        },
        [
            load(),
            f"{answered} answers in {chosen.soak:g} s",
            f"memory: {early:.1f} MB in the second quarter, {late:.1f} MB in the last",
        ],
        chosen.json,
    )


def hold(chosen: argparse.Namespace, folder: Path) -> None:
    """Load until Ctrl-C, for a profiler."""
    with ExitStack() as stack:
        ports = stack.enter_context(engine(MODEL, SERVED))
        key = routes(ports)
        running = stack.enter_context(gateway(folder / "gateway"))
        proxy = Proxy("gateway", running.port, running.process.pid, key)
        print(f"gateway: process {running.process.pid}, port {running.port}", flush=True)
        while True:
            drive(proxy, MODEL, 32, chosen.seconds)
            drive(proxy, MODEL, 32, chosen.seconds, stream=True)


def main() -> None:
    chosen = options()
    if chosen.install:
        from bench.peers import install

        install()
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65536)), hard))
    prepare(valkey=True)
    what = compare
    for wanted, other in (
        (chosen.soak, soak),
        (chosen.streams, many_streams),
        (chosen.workers > 1, two_workers),
        (chosen.hold, hold),
    ):
        if wanted:
            what = other
    with tempfile.TemporaryDirectory(prefix="kvadmin-bench-") as folder, database():
        what(chosen, Path(folder))


if __name__ == "__main__":
    main()
