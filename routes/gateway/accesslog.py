"""A line of JSON for each request: who, what, how long; no prompt, no answer, no key's text."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime

import orjson

from routes.gateway.records import UsageRecord

FLUSH_S = 0.2
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
        self._lines: list[bytes] = []
        self._waiting = 0
        self._flushing = False
        self._thread = ThreadPoolExecutor(1, "access-log")

    def write(self, row: UsageRecord) -> None:
        line = access_line(row)
        if self._waiting + len(line) > MAX_WAITING:
            self.dropped += 1
            return
        self._lines.append(line)
        self._waiting += len(line)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        size = sum(map(len, lines))
        done = asyncio.get_running_loop().run_in_executor(self._thread, self._put, lines)
        done.add_done_callback(lambda _done: self._flushed(size))

    def _flushed(self, size: int) -> None:
        self._waiting -= size
        self._flushing = bool(self._lines)
        if self._lines:
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
        with suppress(RuntimeError):
            self._thread.submit(self._put, self._lines).result(5)
        self._lines = []
        self._thread.shutdown()


def access_line(row: UsageRecord) -> bytes:
    return orjson.dumps(
        {
            "event": "request",
            "timestamp": datetime.fromtimestamp(row.at, UTC),
            "request_id": row.request_id,
            "key_id": row.key_id,
            "business_id": row.business_id,
            "team_id": row.team_id,
            "caller": row.caller,
            "path": row.path,
            "model": row.model,
            "route_id": row.route_id,
            "target_id": row.target_id,
            "engine_id": row.engine_id,
            "status": row.status,
            "layer": row.error_layer,
            "code": row.error_code,
            "streamed": row.streamed,
            "prompt_tokens": row.prompt_tokens,
            "cached_tokens": row.cached_tokens,
            "completion_tokens": row.completion_tokens,
            "tokens_source": row.tokens_source,
            "queue_s": row.queue_s,
            "first_byte_s": row.first_byte_s,
            "total_s": row.total_s,
            "attempts": row.attempts,
            "via": row.via,
        },
        option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z,
    )
