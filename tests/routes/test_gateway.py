"""The gateway process: health, errors in OpenAI's shape, bounds, and requests that arrive in pieces."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routes.gateway import protocol
from routes.gateway.answers import Answer, answer, as_json
from routes.gateway.protocol import ServerProtocol


class Wire(asyncio.Transport):
    """The other end of a connection, in memory."""

    def __init__(self):
        super().__init__()
        self.sent = b""
        self.gone = asyncio.Event()
        self.closed = self.paused = False

    def write(self, data):
        self.sent += data

    def close(self):
        self.closed = True
        self.gone.set()

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        self.paused = True

    def resume_reading(self):
        self.paused = False


def echo(method: str, path: str) -> Answer:
    return as_json(200, {"method": method, "path": path})


def exchange(*pieces: bytes, respond=echo, after=None) -> Wire:
    """What comes back when the bytes arrive in these pieces."""

    async def talk() -> Wire:
        wire = Wire()
        server = ServerProtocol(respond, set())
        server.connection_made(wire)
        for piece in pieces:
            server.data_received(piece)
        if after:
            after(server, wire)
        server.connection_lost(None)
        return wire

    return asyncio.run(talk())


def answers(wire: Wire) -> list[tuple[int, dict]]:
    """Status and JSON of each answer on the wire."""
    found, rest = [], wire.sent
    while rest:
        top, _, rest = rest.partition(b"\r\n\r\n")
        lines = top.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        status = int(lines[0].split()[1])
        if status == 100:
            continue
        length = int(headers["content-length"])
        assert headers["x-request-id"].startswith("req-")
        found.append((status, json.loads(rest[:length])))
        rest = rest[length:]
    return found


REQUESTS = (
    b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n"
    b'{"a": "b"} '
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: " + b"y" * 300 + b"\r\n\r\n"
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"
)
EXPECTED = [
    (200, {"method": "POST", "path": "/v1/chat/completions"}),
    (200, {"method": "GET", "path": "/healthz"}),
    (200, {"method": "POST", "path": "/v1/completions"}),
]


@given(st.lists(st.integers(1, len(REQUESTS) - 1), max_size=12))
@settings(max_examples=60, deadline=None)
def test_it_answers_the_same_however_the_bytes_are_split(cuts):
    edges = [0, *sorted(set(cuts)), len(REQUESTS)]
    pieces = [REQUESTS[start:end] for start, end in pairwise(edges)]
    assert answers(exchange(*pieces)) == EXPECTED


def test_it_answers_byte_by_byte():
    assert answers(exchange(*(bytes([byte]) for byte in REQUESTS))) == EXPECTED


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414, "uri_too_long"),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 40000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431, "headers_too_large"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413, "body_too_large"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, "bad_request"),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "bad_request",
        ),
    ],
)
def test_it_refuses_and_closes(request_bytes, status, code):
    wire = exchange(request_bytes)
    (found,) = answers(wire)
    assert found[0] == status
    assert found[1]["error"]["code"] == code
    assert found[1]["error"]["layer"] == "gateway"
    assert wire.closed


def test_it_stops_reading_a_chunked_body_that_grows_too_large(monkeypatch):
    monkeypatch.setattr(protocol, "MAX_BODY", 10)
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire = exchange(head, b"8\r\nabcdefgh\r\n", b"8\r\nabcdefgh\r\n")
    assert answers(wire)[0][0] == 413
    assert wire.closed


def test_it_answers_nothing_more_after_it_refused():
    wire = exchange(b"\x16\x03\x01garbage", REQUESTS)
    assert len(answers(wire)) == 1


def test_it_keeps_the_connection_unless_asked_not_to():
    assert not exchange(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").closed
    assert exchange(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").closed
    assert exchange(b"GET /a HTTP/1.0\r\nHost: a\r\n\r\n").closed


def test_it_answers_a_request_for_another_protocol_as_a_plain_one():
    wire = exchange(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert answers(wire) == [(200, {"method": "GET", "path": "/a"})]
    assert wire.closed


def test_it_sends_no_body_to_head():
    wire = exchange(b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n")
    assert wire.sent.endswith(b"\r\n\r\n")


def test_it_lets_a_waiting_caller_send_its_body():
    wire = exchange(b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert wire.sent == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_it_reads_no_more_from_a_caller_that_does_not_read():
    def press(server, wire):
        server.pause_writing()
        assert wire.paused
        server.resume_writing()
        assert not wire.paused

    exchange(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n", after=press)


def test_it_gives_up_on_a_request_that_does_not_arrive(monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.05)

    async def talk() -> Wire:
        wire = Wire()
        server = ServerProtocol(echo, set())
        server.connection_made(wire)
        server.data_received(b"GET / HTT")
        await asyncio.wait_for(wire.gone.wait(), 5)
        return wire

    wire = asyncio.run(talk())
    assert answers(wire)[0][0] == 408


def test_a_drain_closes_idle_connections_only():
    def drain(server, wire):
        server.end_when_idle()

    assert exchange(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n", after=drain).closed
    assert not exchange(b"GET /a HTTP/1.1\r\nHo", after=drain).closed


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/models", 404, "route_not_found"),
        ("/v1", 404, "route_not_found"),
        ("/api/v1/chat/completions", 404, "route_not_found"),
        ("/v10", 404, "path_not_found"),
        ("/", 404, "path_not_found"),
    ],
)
def test_it_says_what_is_not_there(path, status, code):
    found = answer("GET", path, database_ok=True)
    error = json.loads(found.body)["error"]
    assert (found.status, error["code"], error["type"]) == (status, code, "invalid_request_error")


def test_it_is_ready_while_the_database_answers():
    assert answer("GET", "/readyz", database_ok=True).status == 200
    assert answer("GET", "/readyz", database_ok=False).status == 503
    assert answer("GET", "/healthz", database_ok=False).status == 200
    assert answer("POST", "/healthz", database_ok=True).status == 405
