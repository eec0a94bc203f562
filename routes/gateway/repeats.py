"""Heads that repeat. A client sends the same lines before every request but for the length of the body, and
an engine the same before its answers: what the parser made of them once holds while they come byte for byte
as before. Pure.
"""

from __future__ import annotations

import re

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})\r\n", re.IGNORECASE)
#: a longer head is read anew each time
LONGEST = 4 << 10
#: a connection whose heads were so often unlike the one before is not expected to repeat one
PATIENCE = 8


class Repeat:
    """A head that was read whole, around the digits of its content-length."""

    __slots__ = ("_after", "_before", "_digits", "_longest", "_rest")

    def __init__(self, before: bytes, after: bytes):
        self._before, self._after = before, after
        self._digits, self._rest = len(before), len(after)
        self._longest = self._digits + 9 + self._rest

    @classmethod
    def of(cls, data: bytes, body: int) -> Repeat | None:
        """From ``data``, which held one message and nothing else, with a body of so many bytes."""
        size = len(data) - body
        if not 4 < size <= LONGEST or data[size - 4 : size] != b"\r\n\r\n":
            return None
        found = _LENGTH.search(data, 0, size - 2)
        if found is None or int(found[1]) != body:
            return None
        return cls(data[: found.start(1)], data[found.end(1) : size])

    def body_of(self, data: bytes) -> bytes | None:
        """The body, if ``data`` is the same head with a length of its own and that body, and nothing more."""
        if not data.startswith(self._before):
            return None
        start = self._digits
        end = data.find(b"\r", start, start + 10)
        if end < 0 or not data.startswith(self._after, end):
            return None
        digits = data[start:end]
        body = data[end + self._rest :]
        return body if digits.isdigit() and int(digits) == len(body) else None

    def is_alone(self, data: bytes) -> bool:
        """Whether ``data`` is that head and nothing more, and a body is to follow."""
        end = len(data) - self._rest
        if len(data) > self._longest or not data.startswith(self._before) or not data.endswith(self._after):
            return False
        digits = data[self._digits : end]
        return digits.isdigit() and int(digits) > 0
