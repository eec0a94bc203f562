"""A usage row as one line of PostgreSQL's COPY text: what the spool holds and the database takes. Pure.

So a row is put into words once, when its request ends, and shipping it costs the gateway next to nothing.
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from ipaddress import ip_address

from routes.gateway.records import UsageRecord

#: column and its type in the batch; ``at`` travels as Unix seconds. Those that go together stand together
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
    "tokens_source": "text",
    "attempts": "int4",
    "caller": "text",
    "via": "text",
    "via_user_id": "int8",
    "prompt_tokens": "int8",
    "cached_tokens": "int8",
    "completion_tokens": "int8",
    "queue_s": "float8",
    "first_byte_s": "float8",
    "total_s": "float8",
}
HEAD = ("\t".join(COLUMNS) + "\n").encode()
_LONGEST = 300
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\x00": "�"})
_INT8 = 2**63 - 1


def _text(value: str) -> str:
    # half a surrogate pair has no bytes in UTF-8
    plain = value[:_LONGEST].encode("utf-8", "replace").decode()
    return plain.translate(_ESCAPES)


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


def _optional(value: int | None) -> str:
    return "\\N" if value is None else str(value)


# A key's requests are much alike, so most of a line is there already.


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
) -> str:
    ids = f"{key}\t{business}\t{team}\t{_optional(route)}\t{_optional(target)}\t{_optional(engine)}"
    return f"{ids}\t{_text(path)}\t{_text(model)}"


@lru_cache(maxsize=4096)
def _how(
    status: int,
    layer: str,
    code: str,
    streamed: bool,
    source: str,
    attempts: int,
    caller: str,
    via: str,
    user: int | None,
) -> str:
    end = f"{_text(source)}\t{attempts}\t{_address(caller)}\t{_text(via)}\t{_optional(user)}"
    return f"{status}\t{_text(layer)}\t{_text(code)}\t{'t' if streamed else 'f'}\t{end}"


def usage_line(row: UsageRecord) -> bytes:
    """The row with its end of line, in the order of COLUMNS. Times are rounded to microseconds."""
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
        row.via_user_id,
    )
    prompt, cached, completion = row.prompt_tokens, row.cached_tokens, row.completion_tokens
    if not (0 <= prompt <= _INT8 and 0 <= cached <= _INT8 and 0 <= completion <= _INT8):
        prompt, cached, completion = (max(0, min(n, _INT8)) for n in (prompt, cached, completion))
    queue = "\\N" if row.queue_s is None else f"{row.queue_s:.6f}"
    first = "\\N" if row.first_byte_s is None else f"{row.first_byte_s:.6f}"
    return (
        f"{_id(row.request_id)}\t{row.at:.6f}\t{who}\t{how}\t"
        f"{prompt}\t{cached}\t{completion}\t{queue}\t{first}\t{row.total_s:.6f}\n"
    ).encode()
