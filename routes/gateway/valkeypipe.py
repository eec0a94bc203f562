"""One connection to Valkey for one part of a worker: what is asked together is sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from redis.asyncio import ConnectionPool, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff


class ValkeyLost(Exception):
    """Valkey does not answer; the text is the kind of error."""


def connection_to(url: str) -> AbstractConnection:
    """A connection, not opened yet, to what VALKEY_URL (as kvadmin.services gives it) names."""
    # the time is limited where it is used: ValkeyPipe.ask
    common: dict[str, Any] = {
        "socket_timeout": None,
        "retry": Retry(NoBackoff(), 0),
    }
    parts = urlsplit(url)
    if parts.scheme != "redis+socket":
        return ConnectionPool.from_url(url, **common).make_connection()
    return UnixDomainSocketConnection(
        path=unquote(parts.path),
        username=unquote(parts.username or "") or None,
        password=unquote(parts.password or "") or None,
        db=int(parse_qs(parts.query).get("virtual_host", ["0"])[0]),
        **common,
    )


class ValkeyPipe:
    """Opened when it is first used, and again after a failure. One caller at a time. ``scripts`` are Lua by
    name; ``timeout_s`` bounds everything that ``ask`` does."""

    def __init__(self, url: str, scripts: Mapping[str, str], timeout_s: float):
        self._connection = connection_to(url)
        self._scripts, self._timeout_s = scripts, timeout_s
        self._hashes: dict[str, str] = {}

    async def _open(self) -> None:
        if self._connection.is_connected:
            return
        await self._connection.connect()
        for name, script in self._scripts.items():
            await self._connection.send_command("SCRIPT", "LOAD", script)
            self._hashes[name] = text(await self._connection.read_response())

    async def ask(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers of all; each begins with a script's name or a command. Raises ValkeyLost, after which
        it is not known whether any of them was heard."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._open()
                packed = self._connection.pack_commands(
                    [
                        ("EVALSHA", self._hashes[name], *rest) if name in self._scripts else (name, *rest)
                        for name, *rest in commands
                    ]
                )
                await self._connection.send_packed_command(packed)
                return [await self._connection.read_response() for _command in commands]
        except (redis.RedisError, OSError, TimeoutError) as error:
            # what was not read would be taken for the next answer
            await self.close()
            raise ValkeyLost(type(error).__name__) from error
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        with suppress(redis.RedisError, OSError):
            await self._connection.disconnect(nowait=True)


def text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
