"""A stream of server-sent events on its way from an engine to a caller. Pure.

The stream is cut only where an event ends, however its bytes arrive, and by bytes alone: what other
programs take for the end of a line (U+0085, U+2028) is text here. An event without anything of interest
passes as it came, unread.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from routes.gateway.counts import Counts, counts_of, merged
from routes.gateway.faults import EngineError, engine_error
from routes.gateway.jsonspans import named, replaced

#: an event larger than this passes in pieces, unread
MAX_EVENT = 16 << 20
_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
#: marks of events that have to be read, by kind of path
_USUAL = (b'"usage"', b"[DONE]", b'"error"')
_INTERESTING = {
    "messages": (*_USUAL, b"message_stop"),
    "responses": (
        *_USUAL,
        b'"response.completed"',
        b'"response.incomplete"',
        b'"response.failed"',
        b'"response.cancelled"',
        b'"response.created"',
    ),
}
#: event types that end a stream
_LAST_TYPES = frozenset(
    {
        "message_stop",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.cancelled",
        "transcript.text.done",
    }
)


def last_boundary(data: bytes | bytearray, start: int) -> int:
    """One past the last blank line at or after ``start``; -1 where there is none."""
    found = data.rfind(b"\n\n", start)
    end = found + 2 if found >= 0 else -1
    if data.find(b"\r", start) >= 0:
        for mark in (b"\n\r\n", b"\r\r"):
            found = data.rfind(mark, start)
            if found >= 0:
                end = max(end, found + len(mark))
    return end


def _events(data: bytes) -> list[bytes]:
    """Whole events, each with its blank line."""
    if b"\r" not in data:
        parts = data.split(b"\n\n")
        events = [part + b"\n\n" for part in parts[:-1]]
        return [*events, parts[-1]] if parts[-1] else events
    events, start = [], 0
    for found in re.finditer(rb"\r\n\r\n|\n\r\n|\n\n|\r\r", data):
        events.append(data[start : found.end()])
        start = found.end()
    if start < len(data):
        events.append(data[start:])
    return events


def _payload(event: bytes) -> bytes:
    """What its ``data`` lines hold."""
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    found = [line[5:].removeprefix(b" ") for line in lines if line[:5] == b"data:"]
    return found[0] if len(found) == 1 else b"\n".join(found)


class Stream:
    """``feed`` takes bytes as they arrive and returns what to forward, whole events only.

    ``model`` is the name that the caller used: an engine that calls itself otherwise is corrected.
    ``drop_usage``: the gateway asked for the usage, not the caller, so it is taken out again;
    ``drop_continuous`` the same of the count within every event.
    """

    __slots__ = (
        "completion_events",
        "counts",
        "drop_continuous",
        "drop_usage",
        "ended",
        "error",
        "final",
        "interesting",
        "model",
        "new",
        "old",
        "response_id",
        "settled",
        "tail",
    )

    def __init__(self, kind: str, model: str, *, drop_usage: bool = False, drop_continuous: bool = False):
        self.model = orjson.dumps(model)
        self.drop_usage, self.drop_continuous = drop_usage, drop_continuous
        self.interesting = _INTERESTING.get(kind, _USUAL)
        self.tail = bytearray()
        #: events without a count: what a stream that breaks off is billed by
        self.completion_events = 0
        self.counts: Counts | None = None
        self.error: EngineError | None = None
        #: final: the counts are of the whole answer
        self.ended = self.final = False
        self.response_id = ""
        self.old = self.new = b""
        #: whether it is known how the engine calls itself
        self.settled = False

    def feed(self, data: bytes) -> bytes:
        tail = self.tail
        if tail:
            start = max(0, len(tail) - 3)
            tail += data
            end = last_boundary(tail, start)
            if end < 0:
                return self._overflow() if len(tail) > MAX_EVENT else b""
            data = bytes(tail[:end])
            del tail[:end]
        elif data[-2:] != b"\n\n":
            end = last_boundary(data, 0)
            if end < 0:
                tail += data
                return b""
            tail += data[end:]
            data = data[:end]
        if not self.settled:
            self._settle(data)
        if self.old:
            data = data.replace(self.old, self.new)
        for mark in self.interesting:
            if mark in data:
                return self._each(data)
        self.completion_events += data.count(b"\n\n") or 1
        return data

    def passes(self, chunk: bytes, end: int) -> bool:
        """Whether what ends at ``end`` in ``chunk`` is whole events of no interest, to be forwarded as they
        are; they count as fed then. Otherwise ``feed`` has to have them."""
        if self.old or not self.settled or self.tail or chunk[end - 2 : end] != b"\n\n":
            return False
        for mark in self.interesting:
            if mark in chunk:
                return False
        self.completion_events += chunk.count(b"\n\n")
        return True

    def finish(self) -> bytes:
        """What was left without a blank line behind it, when the engine ended the stream in order."""
        rest, self.tail = bytes(self.tail), bytearray()
        return self._each(rest) if rest else b""

    def _overflow(self) -> bytes:
        data = bytes(self.tail)
        self.tail.clear()
        return data

    def _settle(self, data: bytes) -> None:
        found = _MODEL.search(data)
        if found is None:
            return
        self.settled = True
        if found[1] != self.model and _text(found[1]) != orjson.loads(self.model):
            self.old = found[0]
            self.new = found[0][: found.start(1) - found.start()] + self.model

    def _each(self, data: bytes) -> bytes:
        return b"".join([kept for event in _events(data) if (kept := self._event(event))])

    def _event(self, event: bytes) -> bytes:
        payload = _payload(event)
        if payload.strip() == b"[DONE]":
            self.ended = True
            return event
        if b"{" not in payload:
            return event
        try:
            value = orjson.loads(payload)
        except orjson.JSONDecodeError:
            return event
        if not isinstance(value, dict):
            return event
        return self._value(event, value)

    def _value(self, event: bytes, value: dict[str, Any]) -> bytes:
        kind = value.get("type")
        inner = value.get("response") if isinstance(value.get("response"), dict) else None
        if inner is None and kind == "message_start" and isinstance(value.get("message"), dict):
            inner = value["message"]
        if isinstance(kind, str) and kind in _LAST_TYPES:
            self.ended = True
        if kind == "response.created" and inner is not None and isinstance(inner.get("id"), str):
            self.response_id = inner["id"]
        found = engine_error(value)
        if found is None and kind == "response.failed" and inner is not None:
            found = engine_error(inner)
        if found is not None:
            self.error = found
            if kind != "response.failed":
                return event
        usage = value.get("usage") if value.get("usage") is not None else (inner or {}).get("usage")
        counts = counts_of(usage)
        if counts is not None:
            self.counts = merged(self.counts, counts)
            self.final = self.final or kind == "message_delta" or self.ended or value.get("choices") == []
        if "usage" not in value or "choices" not in value:
            self.completion_events += 1
            return event
        return self._without_usage(event, value)

    def _without_usage(self, event: bytes, value: dict[str, Any]) -> bytes:
        """An event of chat or completions that has a usage the caller may not have asked for."""
        if not value["choices"] and value["usage"] is not None:
            return b"" if self.drop_usage else event
        self.completion_events += 1
        if self.drop_continuous or (self.drop_usage and value["usage"] is None):
            return _without(event, "usage")
        return event


def _text(literal: bytes) -> str | None:
    try:
        return orjson.loads(literal)
    except orjson.JSONDecodeError:
        return None


def _without(event: bytes, name: str) -> bytes:
    """The event with this member of its object taken out."""
    start = event.find(b"{")
    changes = []
    for member in named(event, name, start):
        # from the comma before the key, or to the one after the value
        key = event.rfind(b'"' + member.key + b'"', 0, member.start)
        before = key
        while event[before - 1] in b" \t":
            before -= 1
        if event[before - 1] == 0x2C:
            changes.append((before - 1, member.end, b""))
            continue
        end = member.end
        while event[end] in b" \t":
            end += 1
        changes.append((key, end + 1 if event[end] == 0x2C else member.end, b""))
    return replaced(event, changes) if changes else event
