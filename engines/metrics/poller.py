"""Reads /metrics of every engine that serves, on a schedule, and writes what it read.

One asyncio loop polls all engines. Each has its own place in the interval, so the load is even; each poll
is bounded, so a slow engine delays no other; what was read is written once a second in one batch by a
thread of its own, so a slow database delays no poll.

Plain aiohttp, because a poll with it takes a fifth of the processor time of httpx over the same transport.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

import aiohttp
import psycopg
import uvloop
from django.db import DatabaseError, DataError, IntegrityError, connection

from engines.metrics.parse import MalformedPage, PageReader
from engines.metrics.schedule import TIMEOUT_S, ends_minute, interval_for, next_due
from engines.metrics.store import Polled, Sample, SampleStore, mark_polled
from engines.models import Engine, Host
from kvadmin.crypto import SecretUnreadable

logger = logging.getLogger(__name__)

#: a page is about 50 KB; more than this is none
PAGE_BYTES = 4 * 1024 * 1024
#: connections are kept for the next poll where the engine keeps them: vLLM closes idle ones after 5 s
#: (VLLM_HTTP_TIMEOUT_KEEP_ALIVE). A request that meets the closing is sent again by aiohttp, as every GET.
KEEP_ALIVE_S = 75.0
_REFRESH_S = 5.0
_WAKE_S = 0.1
_FLUSH_S = 1.0
#: readings kept while the database is away; the oldest go first
_BUFFERED = 50_000
#: what a reading itself does wrong, by Django's classes and the driver's
_UNSTORABLE = (
    DataError,
    IntegrityError,
    psycopg.DataError,
    psycopg.IntegrityError,
    ValueError,
    TypeError,
    ArithmeticError,
)


@dataclass(slots=True)
class _Target:
    """One engine as the poller knows it."""

    engine_id: int
    place: tuple
    url: str
    due: float = 0.0
    busy: bool = False
    reader: PageReader = field(default_factory=PageReader)
    #: its buckets have been read once: until then every poll reads them, for a baseline
    baseline: bool = False
    #: what pages show of it
    shown: tuple | None = None
    #: it answered 401 or 403: there is something before it that wants the key
    wants_key: bool = False
    headers: dict[str, str] | None = None


@dataclass(slots=True)
class Figures:
    """What a poller did: for its log, and for the benchmark."""

    polls: int = 0
    answered: int = 0
    written: int = 0
    worst_late_s: float = 0.0
    worst_answer_s: float = 0.0


class Poller:
    """Polls until it is told to stop. Runs in one thread, with one more for the database."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S, still_ours: Callable[[], bool] | None = None) -> None:
        """``still_ours`` is asked every few seconds (in the database's thread); False ends the poller."""
        self.figures = Figures()
        self._timeout_s = timeout_s
        self._still_ours = still_ours
        self._store = SampleStore()
        self._targets: dict[int, _Target] = {}
        self._heap: list[tuple[float, int]] = []
        self._interval = 0.0
        self._samples: list[Sample] = []
        self._polled: dict[int, Polled] = {}
        self._tasks: set[asyncio.Task] = set()
        self._stopping = False

    def stop(self) -> None:
        """End ``run`` within a quarter of a second; from any thread."""
        self._stopping = True

    def run_here(self) -> None:
        """``run`` in the calling thread, on uvloop."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self.run())

    async def run(self) -> None:
        """Poll until ``stop``; what has been read is written before it returns.

        Neither an engine nor the database ends it: what they do wrong is logged.
        """
        loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=60, enable_cleanup_closed=False
        )
        database = ThreadPoolExecutor(1, "poller-database")
        try:
            async with aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                headers={"Accept": "text/plain;version=0.0.4", "User-Agent": "kvadmin"},
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            ) as session:
                keeper = asyncio.create_task(self._keep(database))
                await self._schedule(session, keeper)
                keeper.cancel()
                for task in list(self._tasks):
                    task.cancel()
                ended, *_ = await asyncio.gather(keeper, *self._tasks, return_exceptions=True)
            await self._flush(database)
            if isinstance(ended, Exception):
                raise ended
        finally:
            await loop.run_in_executor(database, _close)
            database.shutdown()

    async def _schedule(self, session: aiohttp.ClientSession, keeper: asyncio.Task) -> None:
        while not self._stopping and not keeper.done():
            now = time.time()
            while self._heap and self._heap[0][0] <= now:
                due, engine_id = heapq.heappop(self._heap)
                target = self._targets.get(engine_id)
                if target is None or target.due != due:
                    continue
                self._plan(target, now)
                if target.busy:
                    continue
                target.busy = True
                task = asyncio.create_task(self._poll(session, target, due))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            wait = min(self._heap[0][0] - now if self._heap else 0.25, 0.25)
            # many engines are begun at one waking: what one poll brought into the caches serves the next
            await asyncio.sleep(max(wait, _WAKE_S))

    def _plan(self, target: _Target, now: float) -> None:
        target.due = next_due(target.engine_id, self._interval, now)
        heapq.heappush(self._heap, (target.due, target.engine_id))

    async def _poll(self, session: aiohttp.ClientSession, target: _Target, due: float) -> None:
        begun = time.time()
        buckets = not target.baseline or ends_minute(due, self._interval)
        taken, values = 0.0, None
        try:
            async with session.get(target.url, headers=target.headers, allow_redirects=False) as response:
                if response.status == 200:
                    body = await _body(response)
                    taken = time.time()
                    page = target.reader.read(body.decode(), histograms=buckets)
                    values = page.values
                elif response.status in (401, 403):
                    target.wants_key = True
        except (aiohttp.ClientError, TimeoutError, OSError, UnicodeDecodeError, MalformedPage) as error:
            logger.debug("engine %s did not answer: %s", target.engine_id, error)
        except Exception:
            # whatever one engine says must neither go unseen nor end the polls of the others
            values = None
            logger.exception("the metrics of engine %s cannot be read", target.engine_id)
        finally:
            target.busy = False
        self.figures.polls += 1
        self.figures.worst_late_s = max(self.figures.worst_late_s, begun - due)
        answered_at = None
        shown: tuple = (False,)
        if values is not None:
            answered_at = datetime.fromtimestamp(taken, UTC)
            self.figures.answered += 1
            self.figures.worst_answer_s = max(self.figures.worst_answer_s, taken - due)
            self._samples.append(Sample(target.engine_id, answered_at, values, page.histograms))
            target.baseline = True
            usage = values.get("kv_usage_ratio")
            shown = (
                True,
                None if usage is None else round(usage, 3),
                values.get("requests_running"),
                values.get("requests_waiting"),
            )
        changed = shown != target.shown
        target.shown = shown
        earlier = self._polled.get(target.engine_id)
        self._polled[target.engine_id] = Polled(
            target.engine_id,
            datetime.fromtimestamp(begun, UTC),
            answered_at or (earlier.answered_at if earlier else None),
            changed or bool(earlier and earlier.changed),
        )

    async def _keep(self, database: ThreadPoolExecutor) -> None:
        """Every second write what was read; every few seconds see which engines there are."""
        loop = asyncio.get_running_loop()
        refreshed = 0.0
        while True:
            began = time.monotonic()
            try:
                if began - refreshed >= _REFRESH_S:
                    refreshed = began
                    if self._still_ours and not await loop.run_in_executor(database, self._still_ours):
                        logger.warning("polling is somebody else's now")
                        self.stop()
                        return
                    self._take(*await loop.run_in_executor(database, self._pollable))
                await self._flush(database)
            except DatabaseError as error:
                logger.warning("the database does not answer, readings wait: %s", error)
                await loop.run_in_executor(database, _close)
            except Exception:
                # one engine's row or address must not end the polls of the others; readings are kept
                logger.exception("the poller met something unexpected and goes on")
            await asyncio.sleep(max(0.05, _FLUSH_S - (time.monotonic() - began)))

    def _pollable(self) -> tuple[list[tuple], dict[int, str]]:
        """(engine, port, host's kind, service address, address) of each engine, and the keys asked for."""
        places = list(
            Engine.objects.pollable()
            .order_by()
            .values_list("pk", "port", "host__kind", "host__service_address", "host__address")
        )
        wanting = [target.engine_id for target in self._targets.values() if target.wants_key]
        keys = {}
        for engine in Engine.objects.filter(pk__in=wanting).only("pk", "api_key") if wanting else ():
            try:
                keys[engine.pk] = engine.api_key
            except SecretUnreadable as error:
                logger.error("engine %s is polled without its key: %s", engine.pk, error)
        return places, keys

    def _take(self, places: list[tuple], keys: dict[int, str]) -> None:
        """Begin with new engines, forget those that went, follow those that moved."""
        now = time.time()
        interval = interval_for(len(places))
        gone = self._targets.keys() - {place[0] for place in places}
        for engine_id in gone:
            del self._targets[engine_id]
        for place in places:
            target = self._targets.get(place[0])
            if target is None or target.place != place:
                target = self._targets[place[0]] = _Target(place[0], place, _metrics_url(*place[1:]))
                target.due = 0.0
            key = keys.get(place[0])
            if key and target.headers is None:
                target.headers = {"Authorization": f"Bearer {key}"}
            if not target.due or interval != self._interval:
                target.due = next_due(target.engine_id, interval, now)
                heapq.heappush(self._heap, (target.due, target.engine_id))
        self._interval = interval

    async def _flush(self, database: ThreadPoolExecutor) -> None:
        """Write what has been read. What cannot be written stays for the next time."""
        samples, self._samples = self._samples, []
        polled, self._polled = self._polled, {}
        written = False
        try:
            count = await asyncio.get_running_loop().run_in_executor(
                database, self._write, samples, list(polled.values())
            )
            written = True
        finally:
            if not written:
                self._samples = (samples + self._samples)[-_BUFFERED:]
                self._polled = {**polled, **self._polled}
        self.figures.written += count

    def _write(self, samples: list[Sample], polled: list[Polled]) -> int:
        """Write both; how many readings the database took."""
        with connection.wrap_database_errors:
            try:
                self._store.write(samples)
                count = len(samples)
            except _UNSTORABLE:
                count = sum(self._write_one(sample) for sample in samples)
            mark_polled(polled)
        return count

    def _write_one(self, sample: Sample) -> bool:
        """Write one reading of a batch that failed; one that no row can hold is dropped, and said."""
        try:
            with connection.wrap_database_errors:
                self._store.write([sample])
        except _UNSTORABLE as error:
            logger.error("a reading of engine %s cannot be stored: %s", sample.engine_id, error)
            return False
        return True


def _close() -> None:
    """Close the calling thread's connection."""
    connection.close()


async def _body(response: aiohttp.ClientResponse) -> bytes:
    if response.content_length is not None and response.content_length <= PAGE_BYTES:
        return await response.read()
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > PAGE_BYTES:
            raise MalformedPage("the page is larger than 4 MB")
        parts.append(part)
    return b"".join(parts)


def _metrics_url(port: int, kind: str, service_address: str, address: str) -> str:
    engine = Engine(port=port, host=Host(kind=kind, service_address=service_address, address=address))
    return f"{engine.base_url}/metrics"
