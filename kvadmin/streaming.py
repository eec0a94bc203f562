"""Downloads that are made while they are sent."""

from __future__ import annotations

from collections.abc import AsyncIterator

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.http import StreamingHttpResponse


class PieceByPiece(StreamingHttpResponse):
    """Sends what an ordinary iterator yields, one piece after the other, under ASGI too: there Django
    itself would gather all of it in memory first.

    The iterator runs on the request's own thread, so it may use the database. While a slow reader takes a
    piece, no database connection is kept for it.
    """

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = iter(self.streaming_content)
        while (piece := await sync_to_async(next)(pieces, None)) is not None:
            await sync_to_async(close_old_connections)()
            yield piece
