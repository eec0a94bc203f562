"""Downloads: made piece by piece, also where the server is asynchronous."""

from __future__ import annotations

import asyncio

from kvadmin.streaming import PieceByPiece


def test_a_piece_is_made_when_it_is_sent_and_not_before():
    made = []

    def pieces():
        for piece in (b"a", b"b", b"c"):
            made.append(piece)
            yield piece

    async def send() -> list[tuple[bytes, int]]:
        return [(piece, len(made)) async for piece in PieceByPiece(pieces())]

    assert asyncio.run(send()) == [(b"a", 1), (b"b", 2), (b"c", 3)]


def test_a_server_that_is_not_asynchronous_sends_the_same():
    assert b"".join(PieceByPiece(iter([b"a", b"b"]))) == b"ab"
