"""The model's name in an engine's answer, put back to what the caller called it. Pure."""

from __future__ import annotations

from functools import lru_cache

import orjson

from routes.gateway.jsonspans import named, replaced


@lru_cache(maxsize=1024)
def _member(name: str) -> bytes:
    return b'"model":' + orjson.dumps(name)


def renamed(body: bytes, own: str, name: str) -> bytes:
    """A whole answer under the caller's ``name``, whatever the engine calls itself, ``own`` as a rule."""
    wanted = _member(name)
    if wanted in body or not name or body[:1] != b"{":
        return body
    # as engines write it, once; the name may as well stand in something that was handed through
    usual = _member(own)
    if body.count(b'"model"') == 1 and usual in body:
        return body.replace(usual, wanted, 1)
    try:
        changes = [(member.start, member.end, orjson.dumps(name)) for member in named(body, "model")]
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
