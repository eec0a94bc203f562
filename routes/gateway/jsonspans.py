"""Where the members of a JSON object stand in its bytes, so that one value can be replaced and every other
byte stays as it came. Pure. The bytes have been parsed before: they are taken to be valid JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_STRUCTURE = re.compile(rb'["{}\[\]]')
_SCALAR_END = re.compile(rb"[,}\]\s]")
_BLANK = b" \t\r\n"


@dataclass(slots=True, frozen=True)
class Member:
    """``key`` is as it is written, escapes included; data[start:end] is the value."""

    key: bytes
    start: int
    end: int


def _blanks(data: bytes, at: int) -> int:
    while data[at] in _BLANK:
        at += 1
    return at


def _string_end(data: bytes, at: int) -> int:
    """One past the closing quote of the string that opens at ``at``."""
    found = at
    while True:
        found = data.index(b'"', found + 1)
        before = found - 1
        while data[before] == 0x5C:
            before -= 1
        if (found - before) & 1:
            return found + 1


def _value_end(data: bytes, at: int) -> int:
    first = data[at]
    if first == 0x22:
        return _string_end(data, at)
    if first not in b"{[":
        end = _SCALAR_END.search(data, at)
        return end.start() if end else len(data)
    depth = 0
    while True:
        found = _STRUCTURE.search(data, at)
        if found is None:
            raise ValueError("not valid JSON")
        at = found.start()
        kind = data[at]
        if kind == 0x22:
            at = _string_end(data, at)
            continue
        depth += 1 if kind in b"{[" else -1
        at += 1
        if not depth:
            return at


def members(data: bytes, start: int = 0) -> Iterator[Member]:
    """The members of the object that begins at or after ``start`` (blanks aside), in order, doubles too."""
    at = _blanks(data, start)
    if data[at] != 0x7B:
        return
    at = _blanks(data, at + 1)
    while data[at] == 0x22:
        end = _string_end(data, at)
        key = data[at + 1 : end - 1]
        value = _blanks(data, _blanks(data, end) + 1)
        end = _value_end(data, value)
        yield Member(key, value, end)
        at = _blanks(data, end)
        if data[at] != 0x2C:
            return
        at = _blanks(data, at + 1)


def named(data: bytes, name: str, start: int = 0) -> list[Member]:
    """The members with this name, however its characters are escaped."""
    plain = name.encode()
    found = []
    for member in members(data, start):
        key = member.key
        if key == plain or (b"\\" in key and _unescaped(key) == name):
            found.append(member)
    return found


def _unescaped(key: bytes) -> str:
    return json.loads(b'"' + key + b'"')


def replaced(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """``data`` with each data[start:end] put in place; the changes do not overlap."""
    parts, at = [], 0
    for start, end, new in sorted(changes):
        parts += (data[at:start], new)
        at = end
    parts.append(data[at:])
    return b"".join(parts)
