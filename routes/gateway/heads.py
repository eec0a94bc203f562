"""Heads of answers and requests, as bytes. Pure."""

from __future__ import annotations

import os
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
        b"x-request-id",
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
    "x-request-id, retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
    "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, "
    "x-ratelimit-reset-tokens"
)
CORS = b"access-control-allow-origin: *\r\naccess-control-expose-headers: %b\r\n" % EXPOSED.encode()


def status_line(status: int) -> bytes:
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status


def new_id(now: float) -> str:
    """A UUID (version 7, so that rows of one time lie together)."""
    tail = os.urandom(10).hex()
    head = f"{int(now * 1000):012x}"
    return f"{head[:8]}-{head[8:]}-7{tail[:3]}-{'89ab'[int(tail[3], 16) & 3]}{tail[4:7]}-{tail[7:19]}"


def is_kept(name: bytes) -> bool:
    """Whether a header of an engine's answer goes on to the caller."""
    return (
        name not in NOT_PASSED_BACK
        and not name.startswith(b"access-control-")
        and not name.startswith(b"x-ratelimit-")
    )


def header_lines(headers: dict[str, str]) -> bytes:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode("latin-1", "replace")
