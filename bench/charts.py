"""Asks for the charts of an engine that has 30 days of readings.

    python -m bench.charts [--requests 20] [--json]

The rollups of 30 days (43,200 minutes, 720 hours) are made with every column filled; then each chart is
asked for over its whole range through Django's own request handling. Printed: processor time per answer,
this process's and the database's, of the dearest chart.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import timedelta
from pathlib import Path

from bench.support import database, prepare, tell


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=20, help="of each chart")
    parser.add_argument("--seconds", type=float, default=60, help="stop asking after so many")
    parser.add_argument("--range", default="30d")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def fill(engine_id: int, days: int = 30) -> None:
    """Rollups as a busy engine's would be, up to now."""
    from django.db import connection
    from django.utils import timezone

    from engines.metrics.columns import COUNTERS, GAUGES, HISTOGRAMS
    from engines.metrics.partitions import HOURS, MINUTES, ensure_partitions

    end = timezone.now().replace(minute=0, second=0, microsecond=0)
    start = end - timedelta(days=days)
    ensure_partitions(start, end, (MINUTES, HOURS))
    gauges = [f"{name}_{what}" for name in GAUGES for what in ("avg", "min", "max", "last")]
    columns = [*gauges, *COUNTERS, "layouts", *HISTOGRAMS, *(f"{name}_sum" for name in HISTOGRAMS)]
    bounds = [0.001 * 1.8**n for n in range(22)]
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO engines_bucket_layout (bounds) VALUES (%s) RETURNING id", [[*bounds, float("inf")]]
        )
        layout = cursor.fetchone()[0]
        for table, column, step in (("engines_minute", "minute", 60), ("engines_hour", "hour", 3600)):
            wave = "0.5 + 0.45 * sin(extract(epoch FROM t) / 9000)"
            each = f"(n * {step} * ({wave}))::int8"
            buckets = f"(SELECT array_agg({each} ORDER BY n) FROM generate_series(1, 23) AS n)"
            values = [
                *([wave] * len(gauges)),
                *([f"{step} * 100 * ({wave})"] * len(COUNTERS)),
                f"ARRAY[{', '.join([str(layout)] * len(HISTOGRAMS))}]",
                *([buckets] * len(HISTOGRAMS)),
                *([f"{step} * ({wave})"] * len(HISTOGRAMS)),
            ]
            cursor.execute(
                f"INSERT INTO {table} (engine_id, {column}, samples, covered_s, {', '.join(columns)})"
                f" SELECT %s, t, {step // 5}, {step}, {', '.join(values)}"
                f" FROM generate_series(%s, %s, interval '{step} seconds') AS t",
                [engine_id, start, end - timedelta(seconds=step)],
            )
        cursor.execute("UPDATE engines_rollup SET upto = %s", [end])
        cursor.execute("ANALYZE engines_minute, engines_hour")


def database_cpu(pid: int) -> float:
    """Seconds of processor time of the database's process for us; 0 when it is on another machine."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(chosen: argparse.Namespace) -> None:
    from django.db import connection
    from django.test import Client

    from engines.charts.registry import CHARTS
    from kvadmin.policies import Role
    from tests.support.factories import EngineFactory
    from tests.support.people import make_person

    engine = EngineFactory()
    fill(engine.pk)
    client = Client(headers={"host": "localhost"})
    client.force_login(make_person("viewer", Role.VIEWER))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    until = time.monotonic() + chosen.seconds
    lines, worst = [], {"cpu_ms": 0.0}
    for name in CHARTS:
        address = f"/engines/{engine.pk}/charts/{name}.json?range={chosen.range}"
        answer = client.get(address)
        if answer.status_code != 200 or answer.json()["empty"]:
            raise SystemExit(f"{name}: {answer.status_code}, no data")
        points = max(len(trace["x"]) for trace in answer.json()["data"])
        cpu, theirs, clock, done = time.process_time(), database_cpu(pid), time.monotonic(), 0
        while done < chosen.requests and (done == 0 or time.monotonic() < until):
            client.get(address)
            done += 1
        ours = 1000 * (time.process_time() - cpu) / done
        database_ms = 1000 * (database_cpu(pid) - theirs) / done
        clock = 1000 * (time.monotonic() - clock) / done
        lines.append(
            f"{name:16} {ours:6.1f} ms here, {database_ms:6.1f} ms in the database, {clock:6.1f} ms to wait,"
            f" {points} points, {len(answer.content) / 1024:.0f} KB"
        )
        if ours + database_ms > worst["cpu_ms"]:
            worst = {
                "cpu_ms": round(ours + database_ms, 2),
                "python_cpu_ms": round(ours, 2),
                "database_cpu_ms": round(database_ms, 2),
                "chart": name,
                "points": points,
                "range": chosen.range,
            }
    lines.append(f"dearest: {worst['chart']}, {worst['cpu_ms']} ms of processor time in all")
    tell(worst, lines, chosen.json)


def main() -> None:
    chosen = options()
    prepare()
    with database():
        measure(chosen)


if __name__ == "__main__":
    main()
