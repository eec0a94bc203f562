"""Tokens as engines count them, found in their answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

#: an answer up to this size is parsed whole; of a larger one only the usage at its end
WHOLE = 16 << 10
_SPACE = b" \t\r\n"


@dataclass(slots=True)
class Counts:
    prompt: int = 0
    cached: int = 0
    completion: int = 0


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 53 else 0


def counts_of(usage: Any) -> Counts | None:
    """From a usage object in OpenAI's, the Responses API's or Anthropic's words."""
    if not isinstance(usage, dict):
        return None
    if "prompt_tokens" in usage or ("total_tokens" in usage and "input_tokens" not in usage):
        details = usage.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if details and isinstance(details, dict) else 0
        prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        return Counts(prompt or max(0, _count(usage.get("total_tokens")) - completion), cached, completion)
    if "input_tokens" in usage or "output_tokens" in usage:
        details = usage.get("input_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
        read = _count(usage.get("cache_read_input_tokens"))
        # Anthropic counts what was read from or written to its cache beside input_tokens
        prompt = _count(usage.get("input_tokens")) + read + _count(usage.get("cache_creation_input_tokens"))
        return Counts(prompt, cached or read, _count(usage.get("output_tokens")))
    if usage.get("type") == "duration":
        return Counts()
    return None


def merged(old: Counts | None, new: Counts | None) -> Counts | None:
    """Anthropic spreads its counts over two events of a stream; later ones count, zeros do not."""
    if old is None or new is None:
        return new or old
    return Counts(new.prompt or old.prompt, new.cached or old.cached, new.completion or old.completion)


def counts_in(body: bytes) -> Counts | None:
    """From a whole answer, or from its end."""
    if len(body) <= WHOLE:
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            value = None
        if isinstance(value, dict):
            return counts_of(value.get("usage"))
    return _from_end(body)


def _from_end(body: bytes) -> Counts | None:
    """The last member called usage. Within a string its quotes would be escaped, so it is a member."""
    at = body.rfind(b'"usage"')
    if at < 0:
        return None
    at += 7
    while body[at : at + 1] and body[at] in _SPACE:
        at += 1
    if body[at : at + 1] != b":":
        return None
    start = body.find(b"{", at)
    if start < 0 or body[at + 1 : start].strip():
        return None
    depth, place = 0, start
    while place < len(body):
        if body[place] == 0x7B:
            depth += 1
        elif body[place] == 0x7D:
            depth -= 1
            if not depth:
                break
        place += 1
    try:
        return counts_of(orjson.loads(body[start : place + 1]))
    except orjson.JSONDecodeError:
        return None
