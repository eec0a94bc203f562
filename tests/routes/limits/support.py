"""Limiters on the tests' Valkey."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from kvadmin import valkey
from routes.gateway.limits import Grant, Limits
from routes.gateway.records import KeyRecord

#: ids that no other test of this run uses
_ids = itertools.count(int(time.time() * 1000) % 10**9 * 1000)


def a_key(**limits: int) -> KeyRecord:
    id = next(_ids)
    return KeyRecord(id, f"key{id}", b"", 1, 1, f"key {id}", **limits)


async def until(condition, seconds: float = 20) -> None:
    """Wait until it holds; the test fails if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def limiters(count: int = 1, url: str | None = None, **arguments: Any) -> AsyncIterator[list[Limits]]:
    """Limiters that run, each as a gateway's worker would."""
    made = [Limits(url or os.environ["VALKEY_URL"], **arguments) for _n in range(count)]
    tasks = [asyncio.create_task(one.run()) for one in made]
    try:
        # as long as any of them thinks it is the only one, it would keep small shares
        await until(lambda: all(one.lessees >= count for one in made))
        yield made
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def take(limits: Limits, key: KeyRecord, tokens: int = 1) -> Any:
    found = limits.take(key, tokens)
    return await found if asyncio.iscoroutine(found) else found


async def burst(
    limits: list[Limits], key: KeyRecord, count: int, tokens: int = 1
) -> tuple[list[Grant], list]:
    """That many requests at once, spread over the limiters: (grants, refusals)."""
    found = await asyncio.gather(*(take(limits[n % len(limits)], key, tokens) for n in range(count)))
    return [one for one in found if isinstance(one, Grant)], [o for o in found if not isinstance(o, Grant)]


def empty_valkey() -> None:
    """As after a crash of Valkey: everything the limits keep there is gone."""
    client = valkey.client()
    for name in client.scan_iter(match="kvadmin:limits:*"):
        client.delete(name)
