"""What the gateway's bookkeeping costs each request, and what 100,000 keys cost its memory.

    python -m bench.ledger [--keys 100000] [--json]

Limits lease from a real Valkey, rows go through a real spool into a real PostgreSQL, both throw-away.
Printed: processor time of this process for one request's part, and time and memory of the first read of the
keys.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bench.support import database, prepare, tell


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def each_us(work: Callable[[], object], count: int, rounds: int = 5) -> float:
    """Microseconds of processor time of one, the best of some rounds: others use the machine too."""
    best = float("inf")
    for _round in range(rounds):
        began = time.thread_time()
        for _n in range(count):
            work()
        best = min(best, time.thread_time() - began)
    return best / count * 1e6


async def limits_us(count: int) -> dict[str, float]:
    from routes.gateway.limits import Limits
    from routes.gateway.records import KeyRecord

    limits = Limits(os.environ["VALKEY_URL"])
    running = asyncio.create_task(limits.run())
    every = {"requests_per_minute": 10**8, "tokens_per_minute": 10**12, "concurrent": 10**6}
    key = KeyRecord(1, "a", b"", 1, 1, "all limits", monthly_tokens=10**14, **every)
    free = KeyRecord(2, "b", b"", 1, 1, "no limits")
    now = time.time()
    (await limits.take(key, 10, now)).release()
    await asyncio.sleep(0.2)

    def one() -> None:
        grant = limits.take(key, 100, now)
        grant.settle(90)
        grant.release()

    def headers() -> None:
        grant = limits.take(key, 100, now)
        assert grant.lines()
        grant.settle(90)
        grant.release()

    def unbounded() -> None:
        grant = limits.take(free, 100, now)
        grant.settle(90)
        grant.release()

    asked = limits.asked
    found = {
        "take_us": each_us(one, count),
        "take_with_headers_us": each_us(headers, count),
        "take_without_limits_us": each_us(unbounded, count),
        "questions": limits.asked - asked,
    }
    other = Limits(os.environ["VALKEY_URL"])
    also = asyncio.create_task(other.run())
    while limits.lessees < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    small = KeyRecord(3, "c", b"", 1, 1, "a small limit that several share", concurrent=40)

    async def shared() -> None:
        found = limits.take(small, 100)
        grant = await found if asyncio.iscoroutine(found) else found
        grant.settle(90)
        grant.release()

    began = time.process_time()
    for _round in range(100):
        await asyncio.gather(*(shared() for _n in range(20)))
    found["take_small_shared_us"] = (time.process_time() - began) / 2000 * 1e6
    for task in (running, also):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return found


async def rows_us(count: int, folder: Path) -> dict[str, float]:
    from routes.gateway.accesslog import access_line
    from routes.gateway.meters import Meters
    from routes.gateway.shipper import Shipper
    from routes.gateway.spool import Ledger
    from tests.routes.usage.support import connect_arguments, usage

    made = {"prompt_tokens": 900, "completion_tokens": 64, "queue_s": 0.001, "first_byte_s": 0.0213}
    rows = [usage(n / 100, **made) for n in range(count)]
    ledger = Ledger(folder / "spool")
    meters = Meters(folder / "meters")
    ready = iter(rows)
    found = {"record_us": each_us(lambda: ledger.record(next(ready)), count // 5)}
    row = rows[0]
    found["observe_us"] = each_us(lambda: meters.observe(row), count)
    found["access_line_us"] = each_us(lambda: access_line(row), count)
    shipper = Shipper(ledger, connect_arguments())
    await asyncio.sleep(0)
    began = time.process_time()
    assert await shipper.drain(120)
    found["ship_us"] = (time.process_time() - began) / max(1, shipper.shipped) * 1e6
    ledger.close()
    meters.close()
    return found


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def snapshot_cost(keys: int) -> dict[str, float]:
    from django.conf import settings

    from routes.gateway.snapshot import SnapshotFeed
    from tests.routes.usage.support import connect_arguments

    feed = SnapshotFeed(connect_arguments(), data_keys=settings.KVADMIN_DATA_KEYS)
    gc.collect()
    before, began, began_cpu = resident_mb(), time.monotonic(), time.process_time()
    running = asyncio.create_task(feed.run())
    await feed.loaded.wait()
    took, took_cpu = time.monotonic() - began, time.process_time() - began_cpu
    gc.collect()
    assert len(feed.snapshot.by_id) == keys
    found = {
        "snapshot_load_s": took,
        "snapshot_load_cpu_s": took_cpu,
        "snapshot_mb": resident_mb() - before,
    }
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return found


def fill(keys: int) -> None:
    """Keys as they are when in use: with limits, some with models and addresses."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE routes_key DISABLE TRIGGER USER")
        cursor.execute("INSERT INTO kvadmin_team (name, created_at) VALUES ('team', now()) RETURNING id")
        (team,) = cursor.fetchone()
        cursor.execute(
            "INSERT INTO routes_business (team_id, name, description, created_at)"
            " VALUES (%s, 'shop', '', now()) RETURNING id",
            [team],
        )
        (business,) = cursor.fetchone()
        cursor.execute(
            "INSERT INTO routes_key (business_id, name, public_id, digest, hint, models, addresses,"
            " requests_per_minute, tokens_per_minute, concurrent, monthly_tokens, expires_at, created_at)"
            " SELECT %s, 'key number ' || n, lpad(n::text, 12, '0'), sha256(n::text::bytea), '',"
            " CASE WHEN n %% 2 = 0 THEN ARRAY['qwen3-8b', 'llama-' || n %% 7] END,"
            " CASE WHEN n %% 5 = 0 THEN ARRAY['10.0.' || n %% 200 || '.0/24'] ELSE '{}' END,"
            " 600, 100000, 20, 50000000, now() + interval '1 year', now()"
            " FROM generate_series(1, %s) AS n",
            [business, keys],
        )
        cursor.execute("ALTER TABLE routes_key ENABLE TRIGGER USER")


def main() -> None:
    asked = options()
    prepare(valkey=True)
    with database(), tempfile.TemporaryDirectory() as folder:
        fill(asked.keys)
        figures = asyncio.run(snapshot_cost(asked.keys))
        figures |= asyncio.run(limits_us(asked.requests))
        figures |= asyncio.run(rows_us(asked.requests, Path(folder)))
    figures = {name: round(value, 2) for name, value in figures.items()}
    words = (
        "limits: take, settle and release {take_us} us with all four limits ({take_with_headers_us} with the "
        "answer's headers), {take_without_limits_us} without any, {take_small_shared_us} under a small limit "
        "that several workers share\n"
        "a usage row: {record_us} us into the spool, {ship_us} into PostgreSQL, {observe_us} for the "
        "metrics, {access_line_us} for the access log\n"
        "{keys} keys: {snapshot_load_s} s ({snapshot_load_cpu_s} of this process's time), {snapshot_mb} MB"
    )
    tell(
        figures,
        words.format(keys=asked.keys, **figures).splitlines(),
        asked.json,
    )


if __name__ == "__main__":
    main()
