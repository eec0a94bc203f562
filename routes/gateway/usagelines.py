"""A usage row as one line of PostgreSQL's COPY text: what the spool holds and the database takes. Pure.

So a row is put into words once, when its request ends, and shipping it costs the gateway next to nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address

from routes.gateway.records import UsageRecord

#: column and its type in the batch; ``at`` travels as Unix seconds
COLUMNS = {
    "request_id": "uuid",
    "at": "float8",
    "key_id": "int8",
    "business_id": "int8",
    "team_id": "int8",
    "route_id": "int8",
    "target_id": "int8",
    "engine_id": "int8",
    "path": "text",
    "model": "text",
    "status": "int4",
    "error_layer": "text",
    "error_code": "text",
    "streamed": "bool",
    "prompt_tokens": "int8",
    "cached_tokens": "int8",
    "completion_tokens": "int8",
    "tokens_source": "text",
    "queue_s": "float8",
    "first_byte_s": "float8",
    "total_s": "float8",
    "attempts": "int4",
    "caller": "text",
    "via": "text",
    "via_user_id": "int8",
}
HEAD = ("\t".join(COLUMNS) + "\n").encode()
_LONGEST = 300
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\x00": "�"})
_INT8 = 2**63 - 1


@lru_cache(maxsize=8192)
def _text(value: str) -> str:
    # half a surrogate pair has no bytes in UTF-8
    plain = value[:_LONGEST].encode("utf-8", "replace").decode()
    return plain.translate(_ESCAPES)


@lru_cache(maxsize=8192)
def _address(value: str) -> str:
    try:
        return str(ip_address(value))
    except ValueError:
        return ""


def _id(value: str) -> str:
    if len(value) == 36:
        return value
    try:
        return str(uuid.UUID(value))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, value))


def _optional(value: float | None) -> str:
    return "\\N" if value is None else repr(value)


def _count(value: int) -> int:
    return value if 0 <= value <= _INT8 else max(0, min(value, _INT8))


def usage_line(row: UsageRecord) -> bytes:
    """The row with its end of line, in the order of COLUMNS."""
    text: Callable[[str], str] = _text
    return (
        f"{_id(row.request_id)}\t{row.at!r}\t{row.key_id}\t{row.business_id}\t{row.team_id}\t"
        f"{_optional(row.route_id)}\t{_optional(row.target_id)}\t{_optional(row.engine_id)}\t"
        f"{text(row.path)}\t{text(row.model)}\t{row.status}\t{text(row.error_layer)}\t{text(row.error_code)}\t"
        f"{'t' if row.streamed else 'f'}\t{_count(row.prompt_tokens)}\t{_count(row.cached_tokens)}\t"
        f"{_count(row.completion_tokens)}\t{text(row.tokens_source)}\t{_optional(row.queue_s)}\t"
        f"{_optional(row.first_byte_s)}\t{row.total_s!r}\t{row.attempts}\t{_address(row.caller)}\t"
        f"{text(row.via)}\t{_optional(row.via_user_id)}\n"
    ).encode()
