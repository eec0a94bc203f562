"""Polls many simulated engines with the product's own poller into a real PostgreSQL.

    python -m bench.poll [--engines 1000] [--seconds 60] [--json]

The engines run in a process of their own and answer with a real vLLM's page, its numbers moving. Printed:
processor time of this process (user and system: fetch, parse, store) per poll, and how late a page was
read at worst, counted from when its engine was due.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time

from bench.support import database, prepare, tell


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, default=1000)
    parser.add_argument("--slow", type=int, default=0, help="so many answer too late")
    parser.add_argument("--dead", type=int, default=0, help="so many close the connection")
    parser.add_argument("--seconds", type=float, default=60, help="of measuring, after one interval to begin")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def fleet(count: int, slow: int, dead: int) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.support.simulated_fleet"),
            *("--engines", str(count), "--slow", str(slow), "--dead", str(dead)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["ports"]


def measure(chosen: argparse.Namespace, ports: list[int]) -> None:
    from django.db import connection

    from engines.choices import EngineState, HostKind
    from engines.metrics.poller import Poller
    from engines.metrics.schedule import interval_for
    from engines.models import Engine
    from tests.support.factories import EngineFactory, HostFactory, RevisionFactory

    host, revision = HostFactory(kind=HostKind.SSH, address="127.0.0.1"), RevisionFactory()
    Engine.objects.bulk_create(
        EngineFactory.build(
            name=f"engine-{port}", host=host, revision=revision, port=port, observed=EngineState.READY
        )
        for port in ports
    )
    interval = interval_for(len(ports))
    poller = Poller()
    thread = threading.Thread(target=poller.run_here)
    thread.start()
    try:
        # the first page of each engine is read twice as long as the others: not what 1,000 engines cost
        time.sleep(interval + 2)
        figures = poller.figures
        polls, answered, cpu, clock = figures.polls, figures.answered, time.process_time(), time.monotonic()
        time.sleep(chosen.seconds)
        polls, answered = figures.polls - polls, figures.answered - answered
        cpu, clock = time.process_time() - cpu, time.monotonic() - clock
    finally:
        poller.stop()
        thread.join(30)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM engines_sample")
        rows = cursor.fetchone()[0]
    if rows != figures.answered or figures.written != figures.answered:
        raise SystemExit(f"{figures.answered} engines answered, but {rows} readings are in the database")
    if not polls:
        raise SystemExit("nothing was polled")
    result = {
        "cpu_ms_per_poll": round(1000 * cpu / polls, 3),
        "worst_late_s": round(max(figures.worst_late_s, figures.worst_answer_s), 3),
        "worst_begun_late_s": round(figures.worst_late_s, 3),
        "engines": len(ports),
        "interval_s": interval,
        "polls": polls,
        "answered": answered,
        "core_share": round(cpu / clock, 4),
        "rows": rows,
    }
    tell(
        result,
        [
            f"{len(ports)} engines every {interval:g} s, {polls} polls in {clock:.0f} s, {answered} answered",
            f"processor time per poll (fetch, parse, store): {result['cpu_ms_per_poll']} ms",
            f"that is {100 * cpu / clock:.1f}% of a core",
            f"worst delay behind schedule until the page was read: {result['worst_late_s']} s",
            f"worst delay behind schedule until it was asked for: {result['worst_begun_late_s']} s",
        ],
        chosen.json,
    )


def main() -> None:
    chosen = options()
    prepare()
    process, ports = fleet(chosen.engines, chosen.slow, chosen.dead)
    try:
        with database():
            measure(chosen, ports)
    finally:
        process.terminate()
        process.wait(10)


if __name__ == "__main__":
    main()
