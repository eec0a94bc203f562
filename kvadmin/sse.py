"""Server-sent events: one response that follows something in the database or on a host.

A stream holds no database connection between two reads, so more pages may be open than the database
takes connections; of threads it keeps the idle one that answered the request. It ends when the reader
says so, when the client goes, or after ``limit_s``: the client then comes back with Last-Event-ID, is
checked again, and resumes. Who loses the right to it, or signs out, loses the stream within ``CHECK_S``.

Reads of a host may hang for a minute: they have threads of their own, few for each host.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeVar

from asgiref.sync import sync_to_async
from django.contrib.auth import HASH_SESSION_KEY, get_user_model
from django.db import close_old_connections, connections
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.crypto import constant_time_compare

from kvadmin import policies

Cursor = TypeVar("Cursor")

#: threads that read the database for all streams of this process, and connections that they use
READERS = 4
#: threads that read hosts, and how many of them one host may hold up
HOST_READERS, READERS_OF_A_HOST = 32, 2
#: how often a stream looks whether the person may still follow it
CHECK_S = 30.0
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
    may_go_on: Callable[[], bool],
    host: str | None = None,
    every_s: float = 1.0,
    heartbeat_s: float = HEARTBEAT_S,
    limit_s: float = 600.0,
    check_s: float = CHECK_S,
) -> StreamingHttpResponse:
    """A text/event-stream response that calls ``read`` again and again until it says ``done``.

    ``read`` is an ordinary function: it may use the ORM and SSH and runs in a thread, never two at once
    for one stream. It must not raise for trouble it can foresee: it returns an Event that says so.
    ``host`` names the host that ``read`` goes to, None if it only asks the database. ``may_go_on``
    (``still_allowed``) is asked every ``check_s``; False ends the stream, and the client that comes back
    is refused.
    After ``done`` the client gets an event ``end`` and should not come back.
    """
    response = StreamingHttpResponse(
        _events(
            read,
            cursor,
            may_go_on=may_go_on,
            host=host,
            every_s=every_s,
            heartbeat_s=heartbeat_s,
            limit_s=limit_s,
            check_s=check_s,
        ),
        content_type="text/event-stream; charset=utf-8",
    )
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


def still_allowed(request: HttpRequest, permission: str) -> Callable[[], bool]:
    """Whether the person of this request may still do it: active, signed in, with the permission.

    For a call with a management token (``request.auth``): whether the token is still good.
    """
    user_id = request.user.pk
    token = getattr(request, "auth", None)
    session = getattr(request, "session", None)
    key = session.session_key if session is not None and token is None else None
    seal = session.get(HASH_SESSION_KEY) if key else None

    def look() -> bool:
        user = get_user_model().objects.filter(pk=user_id, is_active=True).first()
        if user is None or not policies.allows(user, permission):
            return False
        if token is not None:
            return user.management_tokens.usable().filter(pk=token.pk).exists()
        if key is None:
            return True
        # the seal changes with the password, which ends all sessions of the person
        return session.exists(key) and (
            seal is None or constant_time_compare(seal, user.get_session_auth_hash())
        )

    return look


@lru_cache(maxsize=1)
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(READERS, thread_name_prefix="sse")


class _HostReaders:
    """Threads for reads of hosts; a host that hangs holds no more than its share of them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(HOST_READERS, thread_name_prefix="sse-host")
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    def submit(self, host: str, work: Callable[..., Any], *args: Any) -> Future | None:
        """The work on its way, or None while the host has its share."""
        with self._lock:
            if self._held[host] >= READERS_OF_A_HOST:
                return None
            self._held[host] += 1
        future = self._threads.submit(work, *args)
        future.add_done_callback(lambda _future: self._give_back(host))
        return future

    def _give_back(self, host: str) -> None:
        with self._lock:
            self._held[host] -= 1
            if not self._held[host]:
                del self._held[host]


@lru_cache(maxsize=1)
def _host_readers() -> _HostReaders:
    return _HostReaders()


def _look(work: Callable[..., Any], *args: Any) -> Any:
    try:
        return work(*args)
    finally:
        connections.close_all()


async def _events(
    read: Callable[[Cursor], Read[Cursor]],
    cursor: Cursor,
    *,
    may_go_on: Callable[[], bool],
    host: str | None,
    every_s: float,
    heartbeat_s: float,
    limit_s: float,
    check_s: float,
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    started = spoken = checked = time.monotonic()
    # the request ends with the stream only: till then its thread would keep what signed the caller in
    await sync_to_async(close_old_connections)()
    yield f"retry: {RETRY_MS}\n\n".encode()
    reading: asyncio.Future | None = None
    try:
        while True:
            if reading is None:
                if host is None:
                    reading = loop.run_in_executor(_readers(), _look, read, cursor)
                elif (future := _host_readers().submit(host, _look, read, cursor)) is not None:
                    reading = asyncio.wrap_future(future)
            if reading is not None:
                # a read that hangs keeps neither the heartbeat nor the check waiting
                await asyncio.wait({reading}, timeout=max(1.0, min(heartbeat_s, check_s)))
            now = time.monotonic()
            if now - checked >= check_s:
                checked = now
                if not await loop.run_in_executor(_readers(), _look, may_go_on):
                    return
            if reading is not None and reading.done():
                found, reading = reading.result(), None
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
            if reading is None:
                await asyncio.sleep(every_s)
    finally:
        if reading is not None:
            reading.cancel()
