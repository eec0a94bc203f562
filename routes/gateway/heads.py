"""Heads of answers and requests, as bytes. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus

#: headers that belong to one connection, or that the gateway writes itself
NOT_PASSED_BACK = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
        b"server",
        b"date",
        b"set-cookie",
        b"request-id",
        b"x-request-id",
        b"x-client-request-id",
        b"strict-transport-security",
        b"alt-svc",
        b"www-authenticate",
    }
)
#: what an engine may want to know of the caller's request; all else stays here, keys first of all
PASSED_ON = frozenset(
    {
        b"accept",
        b"accept-language",
        b"anthropic-beta",
        b"anthropic-version",
        b"baggage",
        b"openai-beta",
        b"priority",
        b"traceparent",
        b"tracestate",
        b"user-agent",
    }
)
STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
EXPOSED = (
    "x-request-id, request-id, retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
    "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, "
    "x-ratelimit-reset-tokens"
)
CORS = b"access-control-allow-origin: *\r\naccess-control-expose-headers: %b\r\n" % EXPOSED.encode()


def status_line(status: int) -> bytes:
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status


class Ids:
    """UUIDs of version 7, so that rows of one time lie together. One for each process."""

    def __init__(self) -> None:
        self._tails: list[str] = []
        self._at = 0
        self._head = ""

    def new(self, now: float) -> str:
        """``now`` in Unix seconds."""
        at = int(now * 1000)
        if at != self._at:
            head = f"{at:012x}"
            self._at, self._head = at, f"{head[:8]}-{head[8:]}-7"
        tails = self._tails
        if not tails:
            random = os.urandom(9 << 8).hex()
            for start in range(0, len(random), 18):
                tail = random[start : start + 18]
                tails.append(f"{tail[:3]}-8{tail[3:6]}-{tail[6:]}")
        return self._head + tails.pop()


@lru_cache(maxsize=1024)
def is_kept(name: bytes) -> bool:
    """Whether a header of an engine's answer goes on to the caller."""
    return (
        name not in NOT_PASSED_BACK
        and not name.startswith(b"access-control-")
        and not name.startswith(b"x-ratelimit-")
    )


def passed_back(headers: Mapping[bytes, bytes]) -> bytes:
    """The lines of an engine's answer that go on to the caller."""
    named = headers.get(b"connection")
    if named is None:
        return b"".join([b"%b: %b\r\n" % pair for pair in headers.items() if is_kept(pair[0])])
    # what it names belongs to that one connection as well
    own = {name.strip().lower() for name in named.split(b",")}
    return b"".join(
        [b"%b: %b\r\n" % pair for pair in headers.items() if is_kept(pair[0]) and pair[0] not in own]
    )


def header_lines(headers: dict[str, str]) -> bytes:
    if not headers:
        return b""
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode("latin-1", "replace")
