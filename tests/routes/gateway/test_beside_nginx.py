"""Hostile requests, byte for byte the same to the gateway and to nginx before the same engine's double.

Where nginx refuses, the gateway refuses too; where the gateway takes a request, the engine gets exactly what
was meant, well formed, and never a second request that hid in the first.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from routes import keyformat
from routes.gateway import protocol
from tests.support.gateway import Gateway, run
from tests.support.nginx import nginx
from tests.support.up import free_ports
from tests.support.upstream import Call, Upstream, compact, head

PATH = b"/v1/chat/completions"
BODY = compact({"model": "qwen3-8b", "messages": [{"role": "user", "content": "hi"}]})
SIZE = len(BODY)
HIDDEN = compact({"model": "qwen3-8b", "messages": [{"role": "user", "content": "smuggled"}]})
#: stands for a key, and is as long as one, so that lengths are right
KEY = b"@" * len(keyformat.new_key()[1])
STATUS = re.compile(rb"HTTP/1\.[01] (\d\d\d)")
#: both close every connection of these within seconds; a busy machine takes its time
WAIT_S = 45


def post(
    *lines: bytes,
    body: bytes = BODY,
    start: bytes = b"POST " + PATH + b" HTTP/1.1",
    host: bytes | None = b"host: gateway",
    length: bool = False,
    close: bool = True,
    end: bytes = b"\r\n",
) -> bytes:
    """``lines`` are what is odd about it; ``length`` adds a right content-length."""
    given = [start]
    if host is not None:
        given.append(host)
    given += [b"authorization: Bearer " + KEY, b"content-type: application/json"]
    if close:
        given.append(b"connection: close")
    given += lines
    if length:
        given.append(b"content-length: %d" % len(body))
    return end.join(given) + end + end + body


HIDDEN_REQUEST = post(body=HIDDEN, length=True)
TE = b"transfer-encoding: chunked"


def chunked(body: bytes = BODY, size: bytes | None = None, ext: bytes = b"", trailers: bytes = b"") -> bytes:
    return (
        (b"%x" % len(body) if size is None else size)
        + ext
        + b"\r\n"
        + body
        + b"\r\n0\r\n"
        + trailers
        + b"\r\n"
    )


@dataclass(frozen=True)
class Case:
    name: str
    raw: bytes
    #: bodies of the requests that reach the engine, in order; none: it is refused
    meant: tuple[bytes, ...] = ()
    #: our first answer, where no request reaches the engine
    status: int = 400
    #: why more is taken than by nginx
    wider: str = ""


CASES = [
    # plain, so that the comparison is one
    Case("a plain request", post(length=True), (BODY,)),
    Case("a chunked request", post(TE, body=chunked()), (BODY,)),
    # lengths
    Case("two equal lengths", post(b"content-length: %d" % SIZE, length=True)),
    Case(
        "two lengths, a request in the difference",
        post(b"content-length: %d" % SIZE, b"content-length: 0", body=BODY + HIDDEN_REQUEST),
    ),
    Case("a list of lengths", post(b"content-length: %d, %d" % (SIZE, SIZE))),
    Case("a negative length", post(b"content-length: -%d" % SIZE)),
    Case("a length with a plus", post(b"content-length: +%d" % SIZE)),
    Case("a length in hex", post(b"content-length: 0x%x" % SIZE)),
    Case("a length with a fraction", post(b"content-length: %d.0" % SIZE)),
    Case("a length with an exponent", post(b"content-length: 1e2")),
    Case("a length of two words", post(b"content-length: %d 1" % SIZE)),
    Case("a length with an underscore", post(b"content-length: 1_0")),
    Case("an empty length", post(b"content-length: ")),
    Case("a length past 64 bits", post(b"content-length: %d" % (2**64 + SIZE))),
    Case("a length past 63 bits", post(b"content-length: %d" % (2**63 + SIZE)), status=413),
    Case("a length with leading zeros", post(b"content-length: 000%d" % SIZE), (BODY,)),
    Case(
        "a length with blanks around",
        post(b"content-length: \t %d \t " % SIZE),
        (BODY,),
        wider="blanks and tabs around a value are no part of it",
    ),
    Case("a length with a blank before the colon", post(b"content-length : %d" % SIZE)),
    Case("a length in other digits", post("content-length: ٣٣".encode())),
    Case("a request behind a length of 0", post(b"content-length: 0", body=BODY, close=False)),
    # both framings
    Case("a length, then chunked", post(b"content-length: %d" % SIZE, TE, body=chunked())),
    Case("chunked, then a length", post(TE, b"content-length: %d" % SIZE, body=chunked())),
    Case(
        "a length over a hidden request, chunked",
        post(TE, b"content-length: 4", body=chunked(HIDDEN_REQUEST)),
    ),
    Case(
        "chunks that end before a hidden request, a length over it",
        post(
            TE,
            b"content-length: %d" % (len(chunked()) + len(HIDDEN_REQUEST)),
            body=chunked() + HIDDEN_REQUEST,
        ),
    ),
    # names of the coding
    Case("chunked in capitals", post(b"Transfer-Encoding: CHUNKED", body=chunked()), (BODY,)),
    Case("chunked with blanks around", post(b"transfer-encoding: \t chunked \t", body=chunked())),
    Case("xchunked", post(b"transfer-encoding: xchunked", body=chunked())),
    Case("chunkedx", post(b"transfer-encoding: chunkedx", body=chunked())),
    Case("chunked with a vertical tab", post(b"transfer-encoding: \x0bchunked", body=chunked())),
    Case("chunked in quotes", post(b'transfer-encoding: "chunked"', body=chunked())),
    Case("chunked with a parameter", post(b"transfer-encoding: chunked;q=1", body=chunked())),
    Case("chunked, identity", post(b"transfer-encoding: chunked, identity", body=chunked())),
    Case("identity, chunked", post(b"transfer-encoding: identity, chunked", body=chunked())),
    Case("gzip, chunked", post(b"transfer-encoding: gzip, chunked", body=chunked())),
    Case("chunked twice in a line", post(b"transfer-encoding: chunked, chunked", body=chunked())),
    Case("chunked twice", post(TE, TE, body=chunked())),
    Case("chunked, then identity", post(TE, b"transfer-encoding: identity", body=chunked())),
    Case("identity, then chunked", post(b"transfer-encoding: identity", TE, body=chunked())),
    Case("identity with a length", post(b"transfer-encoding: identity", length=True)),
    Case("an empty coding with a length", post(b"transfer-encoding: ", length=True)),
    Case("chunked with a blank before the colon", post(b"transfer-encoding : chunked", body=chunked())),
    Case("chunked on a folded line", post(b"transfer-encoding:\r\n chunked", body=chunked())),
    Case(
        "chunked with an underscore in its name, and a length",
        post(b"transfer_encoding: chunked", length=True),
        (BODY,),
    ),
    # chunks
    Case("a chunk with an extension", post(TE, body=chunked(ext=b';a="b;c"')), (BODY,)),
    Case("a chunk with a very long extension", post(TE, body=chunked(ext=b";" + b"a" * 2_000_000))),
    Case(
        "twenty thousand chunks of extensions",
        post(TE, body=(b"1;" + b"a" * 50 + b"\r\n \r\n") * 20_000 + chunked()),
    ),
    Case("an extension with a line feed", post(TE, body=chunked(ext=b";a\nb"))),
    Case("a negative chunk", post(TE, body=chunked(size=b"-%x" % SIZE))),
    Case("a chunk with a plus", post(TE, body=chunked(size=b"+%x" % SIZE))),
    Case("a chunk with 0x", post(TE, body=chunked(size=b"0x%x" % SIZE))),
    Case("a chunk with a blank before its size", post(TE, body=chunked(size=b" %x" % SIZE))),
    Case("a chunk with an underscore", post(TE, body=chunked(size=b"1_0"))),
    Case("a chunk past 64 bits", post(TE, body=chunked(size=b"1%016x" % SIZE))),
    Case("a chunk with leading zeros", post(TE, body=chunked(size=b"000%x" % SIZE)), (BODY,)),
    Case("a chunk without a size", post(TE, body=chunked(size=b""))),
    Case("a chunk shorter than it says", post(TE, body=chunked(size=b"%x" % (SIZE + 2)))),
    Case("a chunk longer than it says", post(TE, body=chunked(size=b"%x" % (SIZE - 2)))),
    Case("chunks with bare line feeds", post(TE, body=chunked().replace(b"\r\n", b"\n"))),
    Case(
        "a chunk ended by two bytes that are no line's end",
        post(TE, body=b"%x\r\n%bXX0\r\n\r\n" % (SIZE, BODY)),
    ),
    Case("chunks without an end", post(TE, body=b"%x\r\n%b\r\n" % (SIZE, BODY)), status=408),
    Case(
        "trailers that look like headers",
        post(TE, body=chunked(trailers=b"host: evil\r\nauthorization: Bearer no\r\nx-request-id: 1\r\n")),
        (BODY,),
    ),
    Case("a length among the trailers", post(TE, body=chunked(trailers=b"content-length: 500\r\n"))),
    # lines
    Case("bare line feeds", post(length=True, end=b"\n")),
    Case("bare carriage returns", post(length=True, end=b"\r")),
    Case("a bare line feed between two headers", post(b"a: b\nc: d", length=True)),
    Case("a bare carriage return in a value", post(b"a: b\rc: d", length=True)),
    Case("a header hidden behind a bare line feed", post(b"a: b\ntransfer-encoding: chunked", length=True)),
    Case("a folded header", post(b"a: b\r\n c", length=True)),
    Case("a folded header with a tab", post(b"a: b\r\n\tc", length=True)),
    Case("a blank before the first header", post(length=True, host=b" host: gateway")),
    Case("a line without a colon", post(b"nonsense", length=True)),
    Case("a header without a name", post(b": value", length=True)),
    Case("a blank in a name", post(b"a b: c", length=True)),
    Case("a bracket in a name", post(b"a(b): c", length=True)),
    Case("NUL in a value", post(b"a: b\0c", length=True)),
    Case("NUL in a name", post(b"a\0b: c", length=True)),
    Case("a bell in a value", post(b"a: b\x07c", length=True)),
    Case("bytes past ASCII in a value", post("a: 包裹".encode(), length=True), (BODY,)),
    Case("bytes past ASCII in a name", post("包裹: a".encode(), length=True)),
    Case("an empty value", post(b"a:", length=True), (BODY,)),
    Case("a very long header", post(b"a: " + b"b" * 100_000, length=True), status=431),
    Case("a very long name", post(b"a" * 100_000 + b": b", length=True), status=431),
    Case("a thousand headers", post(*(b"a%d: b" % n for n in range(1000)), length=True), status=431),
    Case(
        "a very long address",
        post(length=True, start=b"POST " + PATH + b"?" + b"a" * 100_000 + b" HTTP/1.1"),
        status=414,
    ),
    Case("empty lines before it", b"\r\n\r\n" + post(length=True), (BODY,)),
    # the first line
    Case("a method in small letters", post(length=True, start=b"post " + PATH + b" HTTP/1.1")),
    Case("a blank in the method", post(length=True, start=b"PO ST " + PATH + b" HTTP/1.1")),
    Case("a blank before the method", post(length=True, start=b" POST " + PATH + b" HTTP/1.1")),
    Case("NUL in the method", post(length=True, start=b"PO\0ST " + PATH + b" HTTP/1.1")),
    Case("a tab in the first line", post(length=True, start=b"POST\t" + PATH + b" HTTP/1.1")),
    Case("an unknown method", post(length=True, start=b"BREW " + PATH + b" HTTP/1.1")),
    Case("TRACE", post(start=b"TRACE " + PATH + b" HTTP/1.1", body=b""), status=405),
    Case("CONNECT", post(start=b"CONNECT gateway:443 HTTP/1.1", body=b""), status=405),
    Case(
        "two blanks in the first line",
        post(length=True, start=b"POST  " + PATH + b" HTTP/1.1"),
        meant=(BODY,),
    ),
    Case("a blank behind the version", post(length=True, start=b"POST " + PATH + b" HTTP/1.1 ")),
    Case("a word behind the version", post(length=True, start=b"POST " + PATH + b" HTTP/1.1 x")),
    Case("a blank in the address", post(length=True, start=b"POST " + PATH + b" x HTTP/1.1")),
    Case("NUL in the address", post(length=True, start=b"POST " + PATH + b"\0 HTTP/1.1")),
    Case(
        "a line's end in the address",
        post(length=True, start=b"POST " + PATH + b"%0d%0aa:b HTTP/1.1"),
        status=404,
    ),
    Case("http in small letters", post(length=True, start=b"POST " + PATH + b" http/1.1")),
    Case("HTTP/1.10", post(length=True, start=b"POST " + PATH + b" HTTP/1.10")),
    Case("HTTP/01.1", post(length=True, start=b"POST " + PATH + b" HTTP/01.1")),
    Case("HTTP/1.2", post(length=True, start=b"POST " + PATH + b" HTTP/1.2")),
    Case("HTTP/2.0", post(length=True, start=b"POST " + PATH + b" HTTP/2.0"), status=505),
    Case("HTTP/1,1", post(length=True, start=b"POST " + PATH + b" HTTP/1,1")),
    Case("HTTP/0.9", b"GET " + PATH + b"\r\n", status=408),
    Case("HTTP/0.9 with headers and a body", post(length=True, start=b"POST " + PATH), status=505),
    Case("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    Case("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)),
    # addresses
    Case(
        "an absolute address", post(length=True, start=b"POST http://gateway" + PATH + b" HTTP/1.1"), (BODY,)
    ),
    Case(
        "an absolute address of another host",
        post(length=True, start=b"POST http://elsewhere" + PATH + b" HTTP/1.1"),
        (BODY,),
    ),
    Case("another scheme", post(length=True, start=b"POST ftp://gateway" + PATH + b" HTTP/1.1"), status=404),
    Case("an address without a slash", post(length=True, start=b"POST v1/chat/completions HTTP/1.1")),
    Case(
        "an address up and away",
        post(length=True, start=b"POST /v1/../../chat/completions HTTP/1.1"),
        status=404,
    ),
    Case("a fragment", post(length=True, start=b"POST " + PATH + b"#a HTTP/1.1"), status=404),
    Case("a star", post(length=True, start=b"POST * HTTP/1.1"), status=404),
    # hosts
    Case("no host", post(length=True, host=None)),
    Case("two hosts", post(b"host: elsewhere", length=True)),
    Case("two equal hosts", post(b"host: gateway", length=True)),
    Case("a host by its address", post(length=True, host=b"host: [2001:db8::1]:8081"), (BODY,)),
    Case("an empty host", post(length=True, host=b"host:"), (BODY,), wider="a server may be without a name"),
    Case(
        "a host with an underscore and a port",
        post(length=True, host=b"host: my_gateway.example:8081"),
        (BODY,),
    ),
    Case("a host with a blank", post(length=True, host=b"host: gate way")),
    Case("a host with a slash", post(length=True, host=b"host: gateway/admin")),
    Case("a host with NUL", post(length=True, host=b"host: gate\0way")),
    Case("a host with an at sign", post(length=True, host=b"host: a@gateway")),
    # versions and connections
    Case("HTTP/1.0", post(length=True, start=b"POST " + PATH + b" HTTP/1.0", host=None), (BODY,)),
    Case(
        "HTTP/1.0 that wants to stay",
        post(b"connection: keep-alive", length=True, start=b"POST " + PATH + b" HTTP/1.0", close=False),
        (BODY,),
    ),
    Case("HTTP/1.0 in chunks", post(TE, body=chunked(), start=b"POST " + PATH + b" HTTP/1.0")),
    Case(
        "a wish for another protocol",
        post(b"upgrade: websocket", b"connection: upgrade", length=True, close=False) + post(length=True),
        (BODY, BODY),
    ),
    Case("an expectation that nobody knows", post(b"expect: 200-ok", length=True), (BODY,)),
    Case("GET with a body", post(length=True, start=b"GET " + PATH + b" HTTP/1.1"), status=405),
    Case(
        "a request in the body of another",
        post(body=HIDDEN_REQUEST, length=True),
    ),
    Case(
        "a request in the body of a GET",
        post(body=HIDDEN_REQUEST, length=True, start=b"GET /v1/models HTTP/1.1"),
        status=200,
    ),
    # what follows
    Case("two requests", post(length=True, close=False) + post(length=True), (BODY, BODY)),
    Case(
        "a request behind a refused one",
        b"GET / HTTP/1.1\r\na b: c\r\nhost: a\r\nhost: b\r\n\r\n" + HIDDEN_REQUEST,
    ),
    Case("a request behind one without a length", post(close=False, body=b"") + b"X" + HIDDEN_REQUEST),
    Case(
        "garbage behind a request",
        post(length=True, close=False) + b"\x00\xff garbage\r\n\r\n" + HIDDEN_REQUEST,
        (BODY,),
    ),
    Case("a request behind the last", post(length=True) + HIDDEN_REQUEST, (BODY,)),
    Case(
        "a request behind one in HTTP/1.0",
        post(length=True, start=b"POST " + PATH + b" HTTP/1.0", close=False) + HIDDEN_REQUEST,
        (BODY,),
    ),
    Case("a body shorter than its length", post(b"content-length: %d" % (SIZE + 10)), status=408),
]


@dataclass
class Outcome:
    statuses: list[int]
    calls: list[Call]

    @property
    def refused(self) -> bool:
        return not self.calls and all(status >= 400 for status in self.statuses)


async def answer(call: Call) -> None:
    body = compact({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
    call.writer.write(head(content_length=str(len(body))) + b"\r\n" + body)


async def outcome(port: int, engine: Upstream, *pieces: bytes) -> Outcome:
    engine.calls.clear()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    with suppress(ConnectionError, TimeoutError):
        for piece in pieces:
            if writer.is_closing():
                break
            writer.write(piece)
            await asyncio.sleep(0)
        async with asyncio.timeout(WAIT_S):
            while data := await reader.read(1 << 16):
                got += data
    writer.close()
    return Outcome([int(status) for status in STATUS.findall(got)], list(engine.calls))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """(nginx's port, the port that it sends to)."""
    (behind,) = free_ports(1)
    with nginx(behind, tmp_path_factory.mktemp("nginx")) as port:
        yield port, behind


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_it_takes_no_more_than_nginx_and_passes_on_what_was_meant(case, other, monkeypatch):
    port, behind = other
    monkeypatch.setattr(protocol, "HEAD_S", 1.0)
    monkeypatch.setattr(protocol, "BODY_IDLE_S", 1.0)

    async def main():
        engine = Upstream(answer)
        engine.port = behind
        async with engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            raw = case.raw.replace(KEY, gateway.secret.encode())
            theirs = await outcome(port, engine, raw)
            ours = await outcome(gateway.port, engine, raw)
            for call in ours.calls:
                assert call.line == "POST /v1/chat/completions HTTP/1.1"
                assert "transfer-encoding" not in call.headers
                assert call.headers["host"] == f"127.0.0.1:{behind}"
            assert tuple(call.body for call in ours.calls) == case.meant
            assert ours.statuses[0] == (200 if case.meant else case.status)
            assert bool(case.wider) == (theirs.refused and bool(ours.calls))
            # nothing of it is left on the connection that another caller's request will use
            assert (await gateway.chat()).status == 200
            assert len(engine.calls) == len(case.meant) + 1
            assert HIDDEN not in [call.body for call in engine.calls]

    run(main())


def splits(raw: bytes) -> Iterator[list[bytes]]:
    """Byte by byte, and in two at places that are spread over it; the end of a long one in one piece."""
    head, rest = raw[:1500], raw[1500:]
    yield [*(head[at : at + 1] for at in range(len(head))), rest]
    for at in range(1, len(head), 31):
        yield [raw[:at], raw[at:]]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_it_is_the_same_however_it_is_split(case, monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_S", 1.0)
    monkeypatch.setattr(protocol, "BODY_IDLE_S", 1.0)

    async def main():
        async with Upstream(answer) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            raw = case.raw.replace(KEY, gateway.secret.encode())
            for number, pieces in enumerate(splits(raw)):
                found = await outcome(gateway.port, engine, *pieces)
                assert tuple(call.body for call in found.calls) == case.meant
                assert found.statuses[0] == (200 if case.meant else case.status)
                # what is waited for takes its time
                if case.status == 408 and number == 1:
                    break

    run(main())
