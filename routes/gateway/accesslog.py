"""A line of JSON for each request: who, what, how long; no prompt, no answer, no key's text."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache

import orjson

from routes.gateway.records import UsageRecord

FLUSH_S = 0.2
#: lines that are put together in one go, which is cheaper than each when its request ends
TOGETHER = 256
#: a pipe takes so much at once without mixing it with what others write
PIPE_BYTES = 4096
#: what waits while the reader of the log is slow; more is left out and counted
MAX_WAITING = 8 << 20


class AccessLog:
    """Lines go to ``descriptor`` from a thread, so that a slow reader of the log never holds a request."""

    def __init__(self, descriptor: int = 1):
        self.descriptor = descriptor
        #: lines that were left out because the log's reader is too slow, or is gone
        self.dropped = 0
        self._rows: list[UsageRecord] = []
        self._lines: list[bytes] = []
        self._waiting = 0
        self._flushing = False
        self._thread = ThreadPoolExecutor(1, "access-log")

    def write(self, row: UsageRecord) -> None:
        """Log a request that has ended, together with others a little later."""
        self._rows.append(row)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(FLUSH_S, self._flush)
        elif len(self._rows) >= TOGETHER:
            self._render()

    def _render(self) -> None:
        rows, self._rows = self._rows, []
        for line in map(access_line, rows):
            if self._waiting + len(line) > MAX_WAITING:
                self.dropped += 1
            else:
                self._lines.append(line)
                self._waiting += len(line)

    def _flush(self) -> None:
        self._render()
        lines, self._lines = self._lines, []
        size = sum(map(len, lines))
        done = asyncio.get_running_loop().run_in_executor(self._thread, self._put, lines)
        done.add_done_callback(lambda _done: self._flushed(size))

    def _flushed(self, size: int) -> None:
        self._waiting -= size
        self._flushing = bool(self._lines or self._rows)
        if self._flushing:
            asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    def _put(self, lines: list[bytes]) -> None:
        part = bytearray()
        for line in [*lines, b""]:
            if part and (not line or len(part) + len(line) > PIPE_BYTES):
                try:
                    while part:
                        del part[: os.write(self.descriptor, part)]
                except OSError:
                    # the reader is gone; requests go on
                    self.dropped += len(lines)
                    return
            part += line

    def close(self) -> None:
        """Write what is left."""
        self._render()
        with suppress(RuntimeError, TimeoutError):
            self._thread.submit(self._put, self._lines).result(5)
        self._lines = []
        self._thread.shutdown(wait=False, cancel_futures=True)


# A key's requests are much alike, so most of a line is there already.


def _inner(**values: object) -> bytes:
    """The members of a JSON object, without its braces."""
    return orjson.dumps(values)[1:-1]


@lru_cache(maxsize=4096)
def _who(
    key: int,
    business: int,
    team: int,
    route: int | None,
    target: int | None,
    engine: int | None,
    path: str,
    model: str,
) -> bytes:
    found = _inner(key_id=key, business_id=business, team_id=team, path=_plain(path), model=_plain(model))
    return found + b"," + _inner(route_id=route, target_id=target, engine_id=engine)


@lru_cache(maxsize=4096)
def _how(
    status: int, layer: str, code: str, streamed: bool, source: str, attempts: int, caller: str, via: str
) -> bytes:
    found = _inner(status=status, layer=_plain(layer), code=_plain(code), streamed=streamed)
    return found + b"," + _inner(tokens_source=source, attempts=attempts, caller=_plain(caller), via=via)


def _plain(text: str) -> str:
    """Half a surrogate pair has no bytes in UTF-8."""
    return text[:300].encode("utf-8", "replace").decode()


@lru_cache(maxsize=16)
def _second(at: int) -> bytes:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


def access_line(row: UsageRecord) -> bytes:
    second = int(row.at)
    who = _who(
        row.key_id,
        row.business_id,
        row.team_id,
        row.route_id,
        row.target_id,
        row.engine_id,
        row.path,
        row.model,
    )
    how = _how(
        row.status,
        row.error_layer,
        row.error_code,
        row.streamed,
        row.tokens_source,
        row.attempts,
        row.caller,
        row.via,
    )
    queue = b"null" if row.queue_s is None else b"%.6f" % row.queue_s
    first = b"null" if row.first_byte_s is None else b"%.6f" % row.first_byte_s
    return (
        b'{"event":"request","timestamp":"%b.%06dZ","request_id":"%b",%b,%b,"prompt_tokens":%d,'
        b'"cached_tokens":%d,"completion_tokens":%d,"queue_s":%b,"first_byte_s":%b,"total_s":%.6f}\n'
        % (
            _second(second),
            int((row.at - second) * 1e6),
            row.request_id.encode("ascii", "replace"),
            who,
            how,
            row.prompt_tokens,
            row.cached_tokens,
            row.completion_tokens,
            queue,
            first,
            row.total_s,
        )
    )
