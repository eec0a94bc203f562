"""Answers that come packed although nobody asked for it, as some servers and proxies send them. Pure.

The gateway has to read an answer: the tokens in it, the model's name, events as they come. So it unpacks what
it knows how to, and the caller gets it plain.
"""

from __future__ import annotations

import zlib
from typing import Any

KNOWN = frozenset({b"gzip", b"x-gzip", b"deflate"})
#: what one piece may become; a piece is a read from a socket
MOST = 64 << 20
#: zlib finds out itself whether it is gzip or zlib; some send deflate without the head of either
EITHER, BARE = 47, -15


class Unpacked:
    """``whole`` is False from the first byte on until the packed data has come to its end."""

    __slots__ = ("_begun", "_gzip", "_reader", "whole")

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._reader: Any = None
        #: the first bytes of what is packed, until there are enough of them to see how
        self._begun = b""
        self.whole = True

    def feed(self, data: bytes) -> bytes:
        """Raises ValueError with what is wrong about it; the text continues "The target …"."""
        plain: list[bytes] = []
        while data:
            if self._reader is None or self._reader.eof:
                self.whole = False
                data = self._begun = self._begun + data
                if len(data) < 2:
                    break
                self._reader, self._begun = self._reader_for(data), b""
            reader = self._reader
            try:
                plain.append(reader.decompress(data, MOST))
            except zlib.error:
                raise ValueError("sent an answer that is not packed as its head says") from None
            if reader.unconsumed_tail:
                raise ValueError(f"sent an answer of more than {MOST} bytes in one piece once unpacked")
            self.whole = reader.eof
            # members of gzip may follow each other
            data = reader.unused_data
        return b"".join(plain)

    def _reader_for(self, data: bytes) -> Any:
        zlib_head = data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
        return zlib.decompressobj(EITHER if self._gzip or zlib_head else BARE)


def unpacking(coding: bytes | None) -> Unpacked | None:
    """None for an answer that is plain. Raises ValueError for a coding that is not known."""
    if coding is None:
        return None
    name = coding.strip().lower()
    if name in {b"", b"identity"}:
        return None
    if name in KNOWN:
        return Unpacked(gzip=name != b"deflate")
    shown = name[:40].decode("latin-1")
    raise ValueError(f"sent an answer packed as {shown!r}, for which the gateway did not ask")
