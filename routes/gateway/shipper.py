"""Brings usage rows from the spool into PostgreSQL, each exactly once, and marks keys as used.

A file is removed only after the commit of its rows. What was committed and not removed (a crash in between)
comes again and is left out by its request id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import structlog
from psycopg import sql

from routes.gateway.spool import Ledger, read_lines
from routes.gateway.usagelines import COLUMNS, HEAD

EVERY_S = 1.0
AGAIN_S = 2.0
#: bytes in one transaction: some 5,000 rows
BATCH_BYTES = 1 << 20
TIMEOUT_S = 30.0
#: how often the files of workers that are gone are looked for
ADOPT_S = 15.0
#: the lock of engines/metrics/partitions.py: partitions are made by one at a time
_PARTITION_LOCK = 7_311_001

_LIST = ", ".join(COLUMNS)
_VALUES = ", ".join("to_timestamp(at)" if name == "at" else name for name in COLUMNS)
_TEMPORARY = (
    "CREATE TEMPORARY TABLE IF NOT EXISTS routes_usage_batch ("
    + ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    + ") ON COMMIT DELETE ROWS"
)
#: as a rule none: partitions are made ahead
_MISSING_DAYS = """
SELECT day FROM (
    SELECT DISTINCT date_trunc('day', to_timestamp(at), 'UTC') FROM routes_usage_batch
) AS days (day)
WHERE to_regclass('routes_usage_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NULL
"""
#: rows before the oldest kept day are not taken: the rollups of their time could not be made again
_INSERT = f"""
WITH added AS (
    INSERT INTO routes_usage ({_LIST})
    SELECT {_VALUES} FROM routes_usage_batch
    WHERE to_timestamp(at) >= coalesce(
        (SELECT upto FROM routes_usage_rollup WHERE level = 'raw'), '-infinity')
    ON CONFLICT DO NOTHING RETURNING at
)
INSERT INTO routes_usage_dirty (minute) SELECT DISTINCT date_trunc('minute', at) FROM added
"""  # noqa: S608
#: what the console does under a key is no use of it; a mark that is 20 seconds old is good enough
_MARK = """
WITH news AS (
    SELECT key_id AS id, to_timestamp(max(at)) AS used_at,
        (array_agg(nullif(caller, '') ORDER BY at DESC))[1]::inet AS caller
    FROM routes_usage_batch WHERE via = '' GROUP BY key_id
), free AS (
    SELECT key.id FROM routes_key AS key JOIN news USING (id)
    WHERE key.last_used_at IS NULL OR key.last_used_at < news.used_at - interval '20 seconds'
    ORDER BY key.id FOR NO KEY UPDATE OF key SKIP LOCKED
)
UPDATE routes_key AS key
SET last_used_at = news.used_at, last_used_ip = coalesce(news.caller, key.last_used_ip)
FROM free JOIN news USING (id) WHERE key.id = free.id
"""

logger = structlog.get_logger("routes.gateway")


class Shipper:
    """One for each worker, on its ledger. ``connect`` are the arguments of psycopg's connect."""

    def __init__(self, ledger: Ledger, connect: Mapping[str, Any], *, every_s: float = EVERY_S):
        self.ledger = ledger
        #: rows that PostgreSQL has, and rows that it could not take
        self.shipped = self.rejected = 0
        #: whether the last try to reach the database succeeded
        self.connected = False
        #: when the spool was last seen empty, Unix seconds
        self.caught_up_at = time.time()
        self._arguments = {"application_name": "kvadmin-usage", **connect, "autocommit": True}
        self._connection: psycopg.AsyncConnection | None = None
        self._every_s = every_s
        self._offsets: dict[Path, int] = {}
        self._adopted_at = 0.0

    @property
    def lag_s(self) -> float:
        """How old the oldest row may be that PostgreSQL has not; 0 when it has all."""
        return 0.0 if self.ledger.empty else max(0.0, time.time() - self.caught_up_at)

    async def run(self) -> None:
        """Ship every second or so until cancelled."""
        try:
            while True:
                self.ledger.retry(time.monotonic())
                wait = self._every_s if await self._once() else AGAIN_S
                await asyncio.sleep(wait)
        finally:
            await asyncio.shield(self._disconnect())

    async def drain(self, limit_s: float) -> bool:
        """Ship everything there is, for ``limit_s`` at most, when no more rows come; True if all is in
        PostgreSQL. ``run`` must have ended."""
        end = time.monotonic() + limit_s
        try:
            while True:
                try:
                    async with asyncio.timeout(max(0.1, end - time.monotonic())):
                        await self._once()
                except TimeoutError:
                    return False
                if self.ledger.empty:
                    return True
                if time.monotonic() > end:
                    return False
                await asyncio.sleep(0.1)
        finally:
            await self._disconnect()

    async def _once(self) -> bool:
        """Ship what there is now; False if the database does not take it."""
        try:
            if time.monotonic() - self._adopted_at >= ADOPT_S:
                self._adopted_at = time.monotonic()
                await self._adopt()
            began = time.time()
            if not self.ledger.closed:
                self.ledger.rotate()
            while self.ledger.closed:
                path = self.ledger.closed[0]
                try:
                    await self._file(path)
                except FileNotFoundError:
                    logger.error("a file of the spool is gone before it was shipped", file=path.name)
                self.ledger.remove(path)
                if not self.ledger.closed:
                    self.caught_up_at = began
                    break
            if self.ledger.held:
                await self._held()
            elif self.ledger.empty:
                self.caught_up_at = began
        except (psycopg.Error, OSError, TimeoutError) as error:
            if self.connected:
                logger.warning("usage rows stay in the spool", error=type(error).__name__)
            self.connected = False
            await self._disconnect()
            return False
        return True

    async def _adopt(self) -> None:
        """Ship what workers that are gone have left."""
        orphans = self.ledger.orphans()
        try:
            for _slot, paths in orphans:
                for path in paths:
                    await self._file(path)
                    path.unlink(missing_ok=True)
        finally:
            for slot, _paths in orphans:
                slot.free()

    async def _held(self) -> None:
        """Rows that the disk did not take go to the database from memory."""
        lines = [self.ledger.held[n] for n in range(min(5_000, len(self.ledger.held)))]
        await self._ship(HEAD, b"".join(lines))
        for _line in lines:
            self.ledger.held.popleft()

    async def _file(self, path: Path) -> None:
        while True:
            head, data, after = read_lines(path, self._offsets.get(path, 0), BATCH_BYTES)
            if not data:
                break
            await self._ship(head, data)
            self._offsets[path] = after
        self._offsets.pop(path, None)

    async def _ship(self, head: bytes, data: bytes) -> None:
        """Commit the rows in ``data``; those that the database cannot take are left out and said."""
        names = head.decode(errors="replace").rstrip("\n").split("\t")
        count = data.count(b"\n")
        if not set(names) <= COLUMNS.keys():
            self._reject(count, "columns that this version does not know")
            return
        connection = await self._connect()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._write(connection, names, data)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            if count <= 1:
                self._reject(count, type(error).__name__)
                return
            half = data.index(b"\n", len(data) // 2 - 1) + 1
            if half == len(data):
                half = data.index(b"\n") + 1
            await self._ship(head, data[:half])
            await self._ship(head, data[half:])
            return
        self.shipped += count

    def _reject(self, count: int, why: str) -> None:
        self.rejected += count
        logger.error("usage rows are not taken by the database", rows=count, reason=why)

    async def _write(self, connection: psycopg.AsyncConnection, names: Sequence[str], data: bytes) -> None:
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        async with connection.transaction(), connection.cursor() as cursor:
            async with cursor.copy(
                sql.SQL("COPY routes_usage_batch ({}) FROM STDIN").format(columns)
            ) as copy:
                await copy.write(data)
            await cursor.execute(_MISSING_DAYS)
            for (day,) in await cursor.fetchall():
                await _make_day(cursor, day)
            await cursor.execute(_INSERT)
            await cursor.execute(_MARK)

    async def _connect(self) -> psycopg.AsyncConnection:
        if self._connection is None or self._connection.closed:
            self._connection = await psycopg.AsyncConnection.connect(**self._arguments)
            await self._connection.execute(_TEMPORARY)
            if not self.connected:
                logger.info("usage rows go to the database")
            self.connected = True
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                await connection.close()


async def _make_day(cursor: psycopg.AsyncCursor, day: datetime) -> None:
    """Make a day's partition."""
    day = day.astimezone(UTC)
    await cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_PARTITION_LOCK])
    await cursor.execute(
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} PARTITION OF routes_usage FOR VALUES FROM ({}) TO ({})"
        ).format(
            sql.Identifier(f"routes_usage_{day:%Y%m%d}"),
            day.isoformat(),
            (day + timedelta(days=1)).isoformat(),
        )
    )
