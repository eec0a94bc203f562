"""Server-sent events: one response that follows something in the database or on a host.

A stream holds no database connection between two reads, so more pages may be open than the database
takes connections; of threads it keeps the idle one that answered the request. It ends when the reader
says so, when the client goes, or after ``limit_s``: the client then comes back with Last-Event-ID, is
checked again, and resumes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeVar

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections
from django.http import HttpRequest, StreamingHttpResponse

Cursor = TypeVar("Cursor")

#: threads that read for all streams of this process: also the most connections that they use
READERS = 4
#: a comment this often keeps proxies from closing a silent stream and finds clients that are gone
HEARTBEAT_S = 15.0
#: how long a client waits before it comes back, ms
RETRY_MS = 2000


@dataclass(frozen=True)
class Event:
    """One event. ``data`` is text, or anything JSON can hold; ``id`` is what Last-Event-ID repeats."""

    data: Any
    name: str = "message"
    id: str | None = None


@dataclass(frozen=True)
class Read(Generic[Cursor]):
    """What one look found: events in order, where to go on, and whether that was all there will be."""

    cursor: Cursor
    events: list[Event] = field(default_factory=list)
    done: bool = False


def format_event(event: Event) -> bytes:
    """The event as it goes over the wire. Line ends inside the data become several data lines."""
    lines = []
    if event.id is not None:
        lines.append(f"id: {_one_line(event.id)}")
    if event.name != "message":
        lines.append(f"event: {_one_line(event.name)}")
    data = event.data if isinstance(event.data, str) else json.dumps(event.data, ensure_ascii=False)
    lines += [f"data: {line}" for line in data.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    return ("\n".join(lines) + "\n\n").encode(errors="replace")


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ").replace("\0", "")


def last_event_id(request: HttpRequest) -> str | None:
    """Where a client that comes back stopped: the header that browsers send."""
    return request.headers.get("Last-Event-ID") or None


def event_stream(
    read: Callable[[Cursor], Read[Cursor]],
    cursor: Cursor,
    *,
    every_s: float = 1.0,
    heartbeat_s: float = HEARTBEAT_S,
    limit_s: float = 600.0,
) -> StreamingHttpResponse:
    """A text/event-stream response that calls ``read`` again and again until it says ``done``.

    ``read`` is an ordinary function: it may use the ORM and SSH and runs in a thread, never two at once
    for one stream. It must not raise for trouble it can foresee: it returns an Event that says so.
    After ``done`` the client gets an event ``end`` and should not come back.
    """
    response = StreamingHttpResponse(
        _events(read, cursor, every_s=every_s, heartbeat_s=heartbeat_s, limit_s=limit_s),
        content_type="text/event-stream; charset=utf-8",
    )
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


@lru_cache(maxsize=1)
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(READERS, thread_name_prefix="sse")


def _look(read: Callable[[Cursor], Read[Cursor]], cursor: Cursor) -> Read[Cursor]:
    try:
        return read(cursor)
    finally:
        connections.close_all()


async def _events(
    read: Callable[[Cursor], Read[Cursor]],
    cursor: Cursor,
    *,
    every_s: float,
    heartbeat_s: float,
    limit_s: float,
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    started = spoken = time.monotonic()
    # the request ends with the stream only: till then its thread would keep what signed the caller in
    await sync_to_async(close_old_connections)()
    yield f"retry: {RETRY_MS}\n\n".encode()
    while True:
        found = await loop.run_in_executor(_readers(), _look, read, cursor)
        cursor = found.cursor
        if found.events:
            spoken = time.monotonic()
            yield b"".join(format_event(event) for event in found.events)
        if found.done:
            yield format_event(Event({}, name="end"))
            return
        now = time.monotonic()
        if now - started > limit_s:
            return
        if now - spoken >= heartbeat_s:
            spoken = now
            yield b": still here\n\n"
        await asyncio.sleep(every_s)
