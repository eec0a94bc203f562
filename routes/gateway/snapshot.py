"""Keeps the snapshot of keys and routes as PostgreSQL has it, by LISTEN, with full reads behind it.

Every BEAT_S the feed sends itself a notice. Notices come in the order of commits, so when it is back, every
change committed before it was sent has been seen: ``agreed_at``. Without that the feed is stale; what it
knows stays in use for ``stale_max_s``.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

import psycopg
import structlog
from psycopg import sql

from kvadmin.sealing import SecretUnreadable, unseal
from routes.gateway.records import Snapshot
from routes.gateway.snapshotrows import (
    GROUP,
    KEY_GROUPS,
    KEYS_AFTER,
    KEYS_BETWEEN,
    KEYS_BY_ID,
    ROUTES,
    TARGETS,
    drop_key,
    key_record,
    put_key,
    routes_by_name,
)

FeedState = Literal["loading", "current", "stale", "expired"]

CHANNEL = "kvadmin_gateway"
BEAT_S = 0.5
#: a feed whose last notice to itself is older than this is stale
STALE_S = 2.0
#: how long a notice may take before the connection counts as lost, or as one that delivers none
LATE_S = 3.0
#: between comparisons of everything known with the database: 100,000 keys cost it a second
CHECK_S = 120.0
#: the same while no notice is delivered
CHECK_BLIND_S = 3.0
TIMEOUT_S = 10.0
AGAIN_S = 0.5
#: keys in one read
CHUNK = 2000

BLIND = (
    "The database delivers no notices (LISTEN): a pooler stands in between that gives each transaction "
    "another backend. Changes of keys and routes are seen only every few seconds. Let DATABASE_URL point to "
    "PostgreSQL itself, or to a pooler in session mode."
)

logger = structlog.get_logger("routes.gateway")


class NoticesLate(Exception):
    """The connection that delivered notices no longer does."""


class SnapshotFeed:
    """One for each worker. ``connect`` are the arguments of psycopg's connect, ``data_keys`` those of
    KVADMIN_DATA_KEYS, the newest first.

    ``snapshot`` is one object for good; it changes only between callbacks of the loop.
    """

    def __init__(self, connect: Mapping[str, Any], *, data_keys: Sequence[str], stale_max_s: float = 900.0):
        self.snapshot = Snapshot()
        #: what an operator has to know, "" when all is well
        self.problem = ""
        self.stale_max_s = stale_max_s
        #: Unix seconds of the send time of the last notice that came back
        self.heard_at = 0.0
        self.loaded = asyncio.Event()
        self._arguments = {"application_name": "kvadmin-snapshot", **connect, "autocommit": True}
        self._data_keys = tuple(data_keys)
        self._opened: dict[str, str | None] = {}
        self._groups: dict[int, tuple[int, int]] = {}
        self._own = f"{CHANNEL}_{uuid.uuid4().hex[:16]}"
        self._was: FeedState = "loading"

    @property
    def state(self) -> FeedState:
        """``current``: sure to know every change of more than some seconds ago. ``stale``: perhaps not.
        ``expired``: for so long that nothing known may be used."""
        if not self.loaded.is_set():
            return "loading"
        now = time.time()
        if now - self.heard_at <= STALE_S:
            return "current"
        return "stale" if now - self.snapshot.agreed_at <= self.stale_max_s else "expired"

    @property
    def age_s(self) -> float:
        """How long ago PostgreSQL was last known to agree; infinity before the first read."""
        return time.time() - self.snapshot.agreed_at if self.loaded.is_set() else float("inf")

    async def run(self) -> None:
        """Follow the database until cancelled, through every loss of the connection."""
        while True:
            try:
                await self._follow()
            except (psycopg.Error, OSError, TimeoutError, NoticesLate) as error:
                self._say(type(error).__name__)
            await asyncio.sleep(AGAIN_S)

    def _say(self, why: str = "") -> None:
        """Log changes of the state."""
        state = self.state
        if why and self._was in {"current", "loading"}:
            logger.warning("keys and routes are not followed", reason=why, state=state)
            self._was = "stale"
        elif not why and self._was != "current":
            logger.info("keys and routes are followed", keys=len(self.snapshot.by_id))
            self._was = "current"

    async def _follow(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            connection = await psycopg.AsyncConnection.connect(**self._arguments)
        try:
            for channel in (CHANNEL, self._own):
                await self._execute(connection, _listen(channel))
            await self._read_all(connection)
            await self._listen(connection)
        finally:
            with suppress(psycopg.Error, OSError):
                await connection.close()

    async def _listen(self, connection: psycopg.AsyncConnection) -> None:
        """Follow notices for as long as they come."""
        number, sent, heard_mono = 0, {}, time.monotonic()
        # workers that began together do not ask together
        checked = time.monotonic() - random.uniform(0, CHECK_S / 2)  # noqa: S311
        delivered = False
        beat_at = 0.0
        while True:
            now = time.monotonic()
            if now - beat_at >= BEAT_S:
                number += 1
                beat_at = now
                sent[str(number)] = time.time()
                await self._execute(connection, "SELECT pg_notify(%s, %s)", [self._own, str(number)])
            notices = []
            async for notice in connection.notifies(
                timeout=max(0.01, beat_at + BEAT_S - time.monotonic()), stop_after=1
            ):
                notices.append(notice)
            back = [notice.payload for notice in notices if notice.channel == self._own]
            await self._take_in(connection, [n.payload for n in notices if n.channel == CHANNEL])
            for payload in back:
                moment = sent.pop(payload, None)
                if moment is not None:
                    self.heard_at = self.snapshot.agreed_at = moment
                    sent = {n: at for n, at in sent.items() if at > moment}
            now = time.monotonic()
            if back:
                heard_mono, delivered = now, True
                if self.problem:
                    self.problem = ""
                self._say()
            elif now - heard_mono > LATE_S:
                if delivered:
                    raise NoticesLate
                if not self.problem:
                    self.problem = BLIND
                    logger.error(BLIND)
                # nothing that waits for an answer may grow without end
                sent.clear()
            if now - checked > (CHECK_BLIND_S if self.problem else CHECK_S):
                checked = now
                await self._check(connection)

    async def _take_in(self, connection: psycopg.AsyncConnection, payloads: Iterable[str]) -> None:
        """Read what the notices name."""
        keys, routes = set(), False
        for payload in payloads:
            kind, _, id = payload.partition(" ")
            if kind == "key" and id.isdigit():
                keys.add(int(id))
            elif kind == "routes":
                routes = True
            elif kind == "all":
                await self._check(connection)
                return
        if keys:
            await self._read_keys(connection, sorted(keys))
        if routes:
            await self._read_routes(connection)

    # -- reading ----------------------------------------------------------------------------------------

    async def _read_all(self, connection: psycopg.AsyncConnection) -> None:
        """Everything, at the first time; later, what differs."""
        if self.loaded.is_set():
            await self._check(connection)
            return
        began = time.time()
        # in one view of the database, so that the marks of the groups stand for the rows that were read
        await self._execute(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        with _no_collection():
            await self._read_every_key(connection)
        await self._read_routes(connection)
        self.snapshot.agreed_at = began
        self.loaded.set()
        self._groups = await self._key_groups(connection)
        await self._execute(connection, "COMMIT")

    async def _read_every_key(self, connection: psycopg.AsyncConnection) -> None:
        last = -1
        while True:
            rows = await self._execute(connection, KEYS_AFTER, [last, CHUNK])
            for row in rows:
                put_key(self.snapshot, key_record(row))
            if len(rows) < CHUNK:
                return
            last = rows[-1][0]
            await asyncio.sleep(0)

    async def _check(self, connection: psycopg.AsyncConnection) -> None:
        """Read the groups of keys that differ from what is known, and all routes."""
        began = time.time()
        groups = await self._key_groups(connection)
        for group in self._groups.keys() | groups.keys():
            if self._groups.get(group) == groups.get(group):
                continue
            first = group * GROUP
            rows = await self._execute(connection, KEYS_BETWEEN, [first, first + GROUP])
            found = {row[0] for row in rows}
            for row in rows:
                put_key(self.snapshot, key_record(row))
            for id in range(first, first + GROUP):
                if id not in found:
                    drop_key(self.snapshot, id)
            await asyncio.sleep(0)
        self._groups = groups
        await self._read_routes(connection)
        self.snapshot.agreed_at = max(self.snapshot.agreed_at, began)

    async def _key_groups(self, connection: psycopg.AsyncConnection) -> dict[int, tuple[int, int]]:
        rows = await self._execute(connection, KEY_GROUPS)
        return {group: (mark, count) for group, mark, count in rows}

    async def _read_keys(self, connection: psycopg.AsyncConnection, ids: Sequence[int]) -> None:
        rows = await self._execute(connection, KEYS_BY_ID, [list(ids)])
        for row in rows:
            put_key(self.snapshot, key_record(row))
        for id in set(ids) - {row[0] for row in rows}:
            drop_key(self.snapshot, id)

    async def _read_routes(self, connection: psycopg.AsyncConnection) -> None:
        routes = await self._execute(connection, ROUTES)
        targets = await self._execute(connection, TARGETS)
        known = self.snapshot.routes
        found = routes_by_name(routes, targets, self._unseal)
        # what did not change stays the same object, so that others can tell by a look
        self.snapshot.routes = {
            name: known[name] if known.get(name) == record else record for name, record in found.items()
        }

    def _unseal(self, sealed: str) -> str | None:
        """Decrypting takes 50 us, so what was opened is kept."""
        if sealed not in self._opened:
            if len(self._opened) > 10_000:
                self._opened.clear()
            try:
                self._opened[sealed] = unseal(sealed, self._data_keys)
            except SecretUnreadable as error:
                logger.error("a target's key cannot be read: it takes no requests", reason=str(error))
                self._opened[sealed] = None
        return self._opened[sealed]

    @staticmethod
    async def _execute(
        connection: psycopg.AsyncConnection, query: Any, parameters: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        async with asyncio.timeout(TIMEOUT_S):
            cursor = connection.cursor(binary=bool(parameters))
            await cursor.execute(query, parameters or None)
            return await cursor.fetchall() if cursor.description else []


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without garbage collection: it would look at every new key again and again. They stay, so later
    collections pass them over too."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.enable()


def _listen(channel: str) -> sql.Composed:
    return sql.SQL("LISTEN {}").format(sql.Identifier(channel))
