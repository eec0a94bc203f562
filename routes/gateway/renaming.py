"""The model's name in an engine's answer, put back to what the caller called it. Pure."""

from __future__ import annotations

import orjson

from routes.gateway.jsonspans import named, replaced


def renamed(body: bytes, own: str, name: str) -> bytes:
    """A whole answer under the caller's ``name``, whatever the engine calls itself, ``own`` as a rule."""
    wanted = orjson.dumps(name)
    if not name or body[:1] != b"{" or b'"model":' + wanted in body:
        return body
    # as engines write it, once; the name may as well stand in something that was handed through
    usual = b'"model":' + orjson.dumps(own)
    if body.count(b'"model"') == 1 and usual in body:
        return body.replace(usual, b'"model":' + wanted, 1)
    try:
        changes = [(member.start, member.end, wanted) for member in named(body, "model")]
    except (ValueError, IndexError):
        return body
    return replaced(body, changes) if changes else body


def renamed_head(data: bytes, own: str, name: str) -> bytes:
    """The beginning of an answer of which more is to come: the first occurrence of ``own`` there."""
    if not name:
        return data
    wanted, usual = orjson.dumps(name), orjson.dumps(own or name)
    for colon in (b'"model":', b'"model": '):
        if colon + usual in data:
            return data.replace(colon + usual, colon + wanted, 1)
    return data
