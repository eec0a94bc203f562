"""A gentle stream of chat requests, enough to see the KV cache breathe."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

#: requests at once swing between these over one period
FEWEST, MOST, PERIOD_S = 1, 6, 120.0
WORDS = ("cache", "page", "token", "prefix", "prompt", "engine", "queue", "batch", "layer", "latency")


@dataclass
class Tally:
    """What the stream has done so far."""

    done: int = 0
    failed: int = 0
    tokens: int = 0
    errors: dict[str, int] = field(default_factory=dict)


def wanted_now(seconds: float) -> int:
    """How many requests should be running ``seconds`` after the start: a slow swing."""
    swing = (1 - math.cos(2 * math.pi * seconds / PERIOD_S)) / 2
    return FEWEST + round(swing * (MOST - FEWEST))


async def one_request(client: httpx.AsyncClient, url: str, model: str, tally: Tally) -> None:
    """One chat completion of a fixed length, with a prompt of its own: nothing of it is shared."""
    words = " ".join(random.choices(WORDS, k=random.randint(60, 220)))  # noqa: S311 (not a secret)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"{random.random()} {words}"}],  # noqa: S311
        "max_tokens": random.randint(200, 600),  # noqa: S311
        "ignore_eos": True,
    }
    try:
        answer = await client.post(f"{url}/v1/chat/completions", json=body)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        tally.failed += 1
        name = type(error).__name__
        tally.errors[name] = tally.errors.get(name, 0) + 1
        await asyncio.sleep(1)
        return
    tally.done += 1
    tally.tokens += answer.json()["usage"]["total_tokens"]


async def stream(
    url: str,
    model: str,
    api_key: str,
    *,
    stop: Callable[[], bool],
    tally: Tally,
    report: Callable[[Tally], None],
) -> None:
    """Send requests until ``stop()``; ``report`` is called about every ten seconds."""
    begun = reported = time.monotonic()
    running: set[asyncio.Task[None]] = set()
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with httpx.AsyncClient(headers=headers, timeout=120, trust_env=False) as client:
        while not stop():
            now = time.monotonic()
            running = {task for task in running if not task.done()}
            while len(running) < wanted_now(now - begun):
                running.add(asyncio.create_task(one_request(client, url, model, tally)))
            if now - reported >= 10:
                reported = now
                report(tally)
            await asyncio.sleep(0.2)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
