"""A key's tokens of the month, as PostgreSQL knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import psycopg

_MONTH = """
WITH upto AS (
    SELECT coalesce(min(upto) FILTER (WHERE level = 'minute'), '-infinity') AS minute,
        coalesce(min(upto) FILTER (WHERE level = 'hour'), '-infinity') AS hour
    FROM routes_usage_rollup
)
SELECT coalesce(sum(tokens), 0) FROM (
    SELECT prompt_tokens + completion_tokens AS tokens FROM routes_usage_hour, upto
    WHERE key_id = %(key)s AND at >= %(since)s AND at < upto.hour
    UNION ALL
    SELECT prompt_tokens + completion_tokens FROM routes_usage_minute, upto
    WHERE key_id = %(key)s AND at >= %(since)s AND at >= upto.hour AND at < upto.minute
    UNION ALL
    SELECT prompt_tokens + completion_tokens FROM routes_usage, upto
    WHERE key_id = %(key)s AND at >= %(since)s AND at >= upto.minute
) AS parts
"""


class MonthCounter:
    """For Limits. Counts one key at a time on one connection, which stays open between counts."""

    def __init__(self, connect: Mapping[str, Any]):
        self._arguments = {"application_name": "kvadmin-months", **connect, "autocommit": True}
        self._connection: psycopg.AsyncConnection | None = None
        self._turn = asyncio.Lock()

    async def __call__(self, key_id: int, since: float) -> int:
        """Tokens that began to be consumed at ``since`` (Unix seconds) or later. Raises OSError when the
        database cannot be asked."""
        async with self._turn:
            try:
                return await self._count(key_id, datetime.fromtimestamp(since, UTC))
            except psycopg.Error as error:
                await self.close()
                raise OSError(type(error).__name__) from error
            except asyncio.CancelledError:
                # an answer that nobody read would be taken for the next one
                await self.close()
                raise

    async def _count(self, key_id: int, since: datetime) -> int:
        if self._connection is None or self._connection.closed:
            self._connection = await psycopg.AsyncConnection.connect(**self._arguments)
        found = await self._connection.execute(_MONTH, {"key": key_id, "since": since})
        row = await found.fetchone()
        return int(row[0]) if row else 0

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                await connection.close()
