"""What follows from a request's head alone: its path, who calls from where, the lines that go on to an engine
and those that go back. Worked out once for all requests of a connection that have the same head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from routes.gateway import heads
from routes.gateway.credentials import Caller
from routes.gateway.paths import Found

if TYPE_CHECKING:
    from routes.gateway.targets import Target


def answer_lines(headers: Mapping[bytes, bytes]) -> bytes:
    """Headers of every answer to a request with these."""
    own = headers.get(b"x-client-request-id") or headers.get(b"x-request-id")
    lines = b"x-client-request-id: %b\r\n" % own[:200] if own else b""
    return lines + heads.CORS if b"origin" in headers else lines


class Standing:
    __slots__ = ("_headers", "_heads", "_passed", "address", "caller", "found", "kind", "lines", "path")

    def __init__(self, found: Found, headers: dict[bytes, bytes], address: str):
        self.found, self.path, self.address = found, found.path, address
        self.lines = answer_lines(headers)
        self.kind = headers.get(b"content-type", b"application/json")
        self._headers = headers
        #: who was found to call, and may from here; while the record of the key is the same, that holds
        self.caller: Caller | None = None
        self._passed: bytes | None = None
        #: by target: the lines it shares with other requests, and the whole head but for length and id
        self._heads: dict[int, tuple[bytes, bytes]] = {}

    def head_for(self, target: Target, rest: str) -> bytes:
        """The head of a request to ``target``, up to its length and id."""
        shared = target.head(self.path, rest)
        known = self._heads.get(target.record.id)
        if known is not None and known[0] is shared:
            return known[1]
        if self._passed is None:
            self._passed = b"".join(
                [
                    b"%b: %b\r\n" % (name, value)
                    for name, value in self._headers.items()
                    if name in heads.PASSED_ON
                ]
            )
        head = b"%bcontent-type: %b\r\n%b" % (shared, self.kind, self._passed)
        self._heads[target.record.id] = (shared, head)
        return head
