"""The console as an ASGI application."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator

from kvadmin.asgi import application


def ask(method: str) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and body of /healthz."""

    async def talk() -> tuple[dict[bytes, bytes], bytes]:
        scope = {
            "type": "http",
            "method": method,
            "path": "/healthz",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        peer = ApplicationCommunicator(application, scope)
        await peer.send_input({"type": "http.request", "body": b""})
        start = await peer.receive_output(30)
        end = await peer.receive_output(30)
        assert start["status"] == 200
        return dict(start["headers"]), end["body"]

    return async_to_sync(talk)()


@pytest.mark.parametrize(("method", "body"), [("GET", b'{"status": "ok"}'), ("HEAD", b"")])
def test_an_answer_to_head_has_no_body_and_says_how_long_it_would_be(method, body):
    headers, found = ask(method)
    assert found == body
    assert headers[b"Content-Length"] == b"16"
