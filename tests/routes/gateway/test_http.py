"""Requests as bytes: split anywhere, in every framing HTTP allows, and hostile ones."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import pytest

from routes.gateway import protocol
from tests.support.gateway import Gateway, request, run, until
from tests.support.upstream import Upstream, compact, silent, stream, whole

BODY = compact({"model": "qwen3-8b", "messages": [{"role": "user", "content": "hi"}]})
STREAM = compact({"model": "qwen3-8b", "messages": [], "stream": True})
PATH = "/v1/chat/completions"


async def some(found: set) -> set:
    await until(lambda: found)
    return found


def chunked(body: bytes, size: int = 7, trailers: bytes = b"") -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return (
        b"".join(b"%x;name=value\r\n%b\r\n" % (len(part), part) for part in parts)
        + b"0\r\n"
        + trailers
        + b"\r\n"
    )


def test_a_request_is_understood_however_it_is_split():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            auth = f"authorization: Bearer {gateway.secret}"
            plain = gateway.head_of(PATH, BODY)
            pieces = request("POST", PATH, b"", auth, "transfer-encoding: chunked") + chunked(
                BODY, 9, b"x-checksum: 1\r\n"
            )
            for raw in (plain, pieces):
                for cut in range(1, len(raw)):
                    async with gateway.client() as client:
                        transport = client.writer.transport
                        transport.write(raw[:cut])
                        await asyncio.sleep(0)
                        transport.write(raw[cut:])
                        assert (await client.reply()).status == 200
                    assert engine.calls.pop().body == BODY
            async with gateway.client() as client:
                for byte in plain + pieces:
                    client.write(bytes([byte]))
                    await asyncio.sleep(0)
                assert (await client.reply()).status == 200
                assert (await client.reply()).status == 200

    run(main())


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414, "uri_too_long"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nA: " + b"b" * 40000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nA: " + b"b" * 60000, 431, "headers_too_large"),
        (
            b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: b\r\n" % n for n in range(200)) + b"\r\n",
            431,
            "headers_too_large",
        ),
        (b"POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 99999999999\r\n\r\n", 413, "body_too_large"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400, "bad_request"),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            400,
            "bad_request",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            400,
            "bad_request",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            400,
            "bad_request",
        ),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "bad_request"),
        (b"POST / HTTP/1.1\r\nhost: a\r\nContent-Length: +3\r\n\r\nabc", 400, "bad_request"),
        (b"POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 3, 3\r\n\r\nabc", 400, "bad_request"),
        (b"POST / HTTP/1.1\r\nhost: a\r\nContent-Length : 3\r\n\r\nabc", 400, "bad_request"),
        (b"POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nA: b\r\n folded\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nA: \x00\r\n\r\n", 400, "bad_request"),
        (b"GET / HTTP/2.0\r\nhost: a\r\n\r\n", 505, "http_version"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad_request"),
        (b"CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n", 405, "method_not_allowed"),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, bytes) else None,
)
def test_it_refuses_and_closes(raw, status, code):
    async def main():
        async with Gateway() as gateway:
            for pieces in ([raw], [raw[:20], raw[20:]], [bytes([byte]) for byte in raw[:400]] + [raw[400:]]):
                async with gateway.client() as client:
                    for piece in pieces:
                        client.write(piece)
                    reply = await client.reply()
                    assert (reply.status, reply.error["code"]) == (status, code)
                    assert reply.error["layer"] == "gateway"
                    assert reply.headers["connection"] == "close"
                    assert await client.closed()
            assert not gateway.rows

    run(main())


def test_a_caller_that_goes_on_sending_still_gets_the_refusal():
    """A reset, which answers what comes after a close, would take it away."""

    async def main():
        async with Gateway() as gateway, gateway.client() as client:
            client.write(b"no request\r\n")
            (connection,) = await some(gateway.app.connections)
            await until(lambda: connection.lingering)
            for _ in range(20):
                client.write(b"a: b\r\n")
                await asyncio.sleep(0.005)
            assert (await client.reply()).status == 400
            assert await client.closed()

    run(main())


def test_it_refuses_and_closes_also_while_the_process_handles_something_else():
    """The parser's own error names the callback's only if no other error is being handled."""

    async def main():
        async with Upstream(whole({}, 600)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            assert (await gateway.send(b"GET / HTTP/1.1\r\n\r\n")).status == 400
            reply = await gateway.chat()
            assert (reply.status, reply.error["code"]) == (502, "upstream_cut")

    try:
        raise LookupError
    except LookupError:
        run(main())


def test_a_body_at_the_limit_passes_and_one_byte_more_does_not():
    async def main():
        async with Upstream(whole(b"{}")) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            top = b'{"model":"qwen3-8b","image":"'
            body = top + b"a" * (protocol.MAX_BODY - len(top) - 2) + b'"}'
            assert len(body) == protocol.MAX_BODY > 20 << 20
            assert (await gateway.send(gateway.head_of(PATH, body))).status == 200
            assert engine.calls[0].body == body
            reply = await gateway.send(gateway.head_of(PATH, body + b" "))
            assert (reply.status, reply.error["code"]) == (413, "body_too_large")
            auth = f"authorization: Bearer {gateway.secret}"
            raw = request("POST", PATH, b"", auth, "transfer-encoding: chunked") + chunked(
                body + b" ", 1 << 20
            )
            reply = await gateway.send(raw)
            assert (reply.status, reply.error["code"]) == (413, "body_too_large")
            assert len(engine.calls) == 1

    run(main())


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_packed_body_is_unpacked(coding):
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            pack = gzip.compress if coding == "gzip" else zlib.compress
            raw = gateway.head_of(PATH, pack(BODY), f"content-encoding: {coding}")
            assert (await gateway.send(raw)).status == 200
            assert engine.calls[0].body == BODY
            assert "content-encoding" not in engine.calls[0].headers
            for body, status in (
                (b"not packed", 400),
                (pack(BODY)[:-4], 400),
                (pack(BODY) + b"more", 400),
                (pack(b" " * (protocol.MAX_BODY + 1)), 413),
            ):
                reply = await gateway.send(gateway.head_of(PATH, body, f"content-encoding: {coding}"))
                assert reply.status == status
            reply = await gateway.send(gateway.head_of(PATH, BODY, "content-encoding: br"))
            assert (reply.status, reply.error["code"]) == (415, "content_encoding")

    run(main())


def test_an_old_caller_gets_no_chunks():
    async def main():
        async with Upstream(stream("a", "b")) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            raw = (
                gateway.head_of(PATH, STREAM)
                .replace(b"HTTP/1.1", b"HTTP/1.0")
                .replace(b"host: gateway\r\n", b"")
            )
            reply = await gateway.send(raw)
            assert "transfer-encoding" not in reply.headers
            assert reply.headers["connection"] == "close"
            assert reply.text == "ab"
            engine.answer = whole()
            raw = gateway.head_of(PATH, BODY).replace(b"HTTP/1.1", b"HTTP/1.0")
            assert (await gateway.send(raw)).json["model"] == "qwen3-8b"

    run(main())


def test_a_caller_that_waits_is_told_to_go_on_or_refused_before_it_sends():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            for key, expected in ((gateway.secret, 100), ("wrong", 401)):
                top = gateway.head_of(PATH, BODY, "expect: 100-continue", key=key)[: -len(BODY)]
                async with gateway.client() as client:
                    client.write(top)
                    status, headers = await client.head()
                    assert status == expected
                    if status == 100:
                        client.write(BODY)
                        assert (await client.reply()).status == 200
                    else:
                        await client.reader.readexactly(int(headers["content-length"]))
                        assert await client.closed()

    run(main())


def test_a_caller_that_waits_behind_another_request_is_told_in_its_turn():
    async def main():
        async with Upstream(stream("a", pause_s=0.1)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            top = gateway.head_of(PATH, BODY, "expect: 100-continue")[: -len(BODY)]
            async with gateway.client() as client:
                client.write(gateway.head_of(PATH, STREAM) + top)
                assert (await client.reply()).text == "a"
                assert (await client.head())[0] == 100
                engine.answer = whole()
                client.write(BODY)
                assert (await client.reply()).status == 200

    run(main())


def test_bodies_held_at_once_are_bounded(monkeypatch):
    monkeypatch.setattr(protocol, "MAX_BODIES", 100_000)

    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            big = compact({"model": "qwen3-8b", "messages": [], "pad": "x" * 60_000})
            async with gateway.client() as holder:
                holder.write(gateway.head_of(PATH, big)[:-1])
                await until(lambda: gateway.app.body_bytes > 60_000)
                reply = await gateway.send(gateway.head_of(PATH, big))
                assert (reply.status, reply.error["code"]) == (503, "gateway_busy")
                assert reply.headers["retry-after"] == "1"
                assert (await gateway.chat()).status == 200
                holder.write(b"}")
                assert (await holder.reply()).status == 200
            await until(lambda: not gateway.app.connections)
            assert gateway.app.body_bytes == 0
            assert (await gateway.send(gateway.head_of(PATH, big))).status == 200

    run(main())


def test_a_wish_for_another_protocol_loses_no_body():
    """As Java's client sends every request that it may."""
    wish = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAEAAEAAAAIAAAAB")

    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            plain = gateway.head_of(PATH, BODY, *wish)
            top = gateway.head_of(PATH, b"", *wish, "transfer-encoding: chunked")
            pieces = top + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
            page = request("GET", "/v1/models", b"", f"authorization: Bearer {gateway.secret}", *wish)
            for raw in (plain, pieces):
                for cut in range(1, len(raw), 7):
                    async with gateway.client() as client:
                        client.write(raw[:cut])
                        await asyncio.sleep(0)
                        client.write(raw[cut:] + page + plain)
                        assert (await client.reply()).status == 200
                        assert (await client.reply()).json["object"] == "list"
                        assert (await client.reply()).status == 200
                    assert [engine.calls.pop().body, engine.calls.pop().body] == [BODY, BODY]
            async with gateway.client() as client:
                for byte in plain + page + pieces:
                    client.write(bytes([byte]))
                    await asyncio.sleep(0)
                assert [(await client.reply()).status for _ in range(3)] == [200] * 3
            many = request("GET", "/healthz", b"", *wish) * 2000
            async with gateway.client() as client:
                client.write(many)
                assert [(await client.reply()).status for _ in range(2000)] == [200] * 2000
            refused = plain.replace(b"content-length: ", b"content-length: 0\r\ncontent-length: ")
            assert (await gateway.send(refused)).status == 400

    run(main())


def test_a_large_body_is_not_taken_of_a_caller_who_may_not_call():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            chunked = b"100000\r\n" + b" " * 200_000
            for lines, body in (
                (["content-length: 20000000"], b" " * 200_000),
                (["transfer-encoding: chunked"], chunked),
            ):
                for key, path, code in (
                    ("wrong", PATH, "invalid_api_key"),
                    (gateway.secret, "/v1/nothing", "path_not_found"),
                ):
                    async with gateway.client() as client:
                        client.write(gateway.head_of(path, b"", *lines, key=key) + body)
                        reply = await client.reply()
                        assert reply.error["code"] == code
                        assert await client.closed()
            assert (await gateway.send(gateway.head_of(PATH, BODY + b" " * 200_000))).status == 200

    run(main())


def test_what_follows_a_body_is_nothing_that_is_kept():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            top = gateway.head_of(PATH, b"", "transfer-encoding: chunked")
            raw = top + b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
            async with gateway.client() as client:
                client.write(raw + b"authorization: Bearer wrong\r\n")
                client.write(b"".join(b"x%d: y\r\n" % number for number in range(1000)))
                await until(lambda: any(connection.in_body for connection in gateway.app.connections))
                await asyncio.sleep(0.1)
                assert [connection.headers for connection in gateway.app.connections] == [{}]
                client.write(b"\r\n")
                assert (await client.reply()).status == 200

    run(main())


def test_cors_and_head_and_options():
    async def main():
        async with Gateway() as gateway:
            gateway.add_route("qwen3-8b")
            asked = "access-control-request-headers: authorization, x-stainless-os"
            reply = await gateway.send(
                request("OPTIONS", PATH, b"", "origin: https://app.example", asked), method="OPTIONS"
            )
            assert reply.status == 204
            assert reply.headers["access-control-allow-origin"] == "*"
            assert reply.headers["access-control-allow-headers"] == "authorization, x-stainless-os"
            assert "POST" in reply.headers["access-control-allow-methods"]
            reply = await gateway.get("/v1/models", "origin: https://app.example")
            assert reply.headers["access-control-allow-origin"] == "*"
            assert "x-request-id" in reply.headers["access-control-expose-headers"]
            reply = await gateway.get("/v1/models", method="HEAD")
            assert reply.status == 200
            assert int(reply.headers["content-length"]) > 2
            reply = await gateway.get(PATH)
            assert (reply.status, reply.headers["allow"]) == (405, "POST, OPTIONS")

    run(main())


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/models", 200),
        ("/api/v1/models", 200),
        ("/v1/v1/models", 200),
        ("//v1/models", 200),
        ("/v1//models/", 200),
        ("/models", 200),
        ("/v1/models?limit=20", 200),
        ("/v1/models/qwen3-8b", 200),
        ("http://gateway/v1/models", 200),
        ("/v1/%6dodels", 200),
        ("/v1", 404),
        ("/", 404),
        ("/v1/engines/", 404),
        ("/index.html", 404),
        ("/v10/models", 404),
        ("/v1/../healthz", 404),
        ("/v1/models/other", 404),
        ("*", 404),
    ],
)
def test_paths_are_found_as_callers_write_them(path, status):
    async def main():
        async with Gateway() as gateway:
            gateway.add_route("qwen3-8b")
            reply = await gateway.get(path)
            assert reply.status == status
            assert reply.headers["content-type"] == "application/json"
            if status == 404:
                assert reply.error["code"] in {"path_not_found", "model_not_found"}

    run(main())


def test_a_caller_that_does_not_finish_is_given_up(monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_S", 0.1)
    monkeypatch.setattr(protocol, "BODY_IDLE_S", 0.1)
    monkeypatch.setattr(protocol, "LINGER_S", 0.1)

    async def main():
        async with Gateway() as gateway:
            for raw in (b"GET / HTT", gateway.head_of(PATH, BODY)[:-3], b"\r\n"):
                async with gateway.client() as client:
                    client.write(raw)
                    reply = await client.reply()
                    assert (reply.status, reply.error["code"]) == (408, "request_timeout")
                    assert await client.closed()
            async with gateway.client() as client:
                # nothing was asked, so nothing is answered
                assert await client.closed()

    run(main())


def test_an_idle_connection_is_closed(monkeypatch):
    monkeypatch.setattr(protocol, "IDLE_S", 0.1)

    async def main():
        async with Gateway() as gateway, gateway.client() as client:
            client.write(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await client.reply()).status == 200
            assert await client.closed()

    run(main())


def test_a_caller_that_reads_nothing_stops_the_engine(monkeypatch):
    monkeypatch.setattr(protocol, "STUCK_S", 0.3)
    sent = 0

    async def endless(call):
        nonlocal sent
        from tests.support.upstream import chunk, delta, head

        call.writer.write(head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n")
        event = chunk(delta("x" * 60000))
        while True:
            call.writer.write(event)
            sent += len(event)
            await call.writer.drain()

    async def main():
        async with Upstream(endless) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                client.writer.transport.pause_reading()
                client.write(gateway.head_of(PATH, STREAM))
                await until(lambda: gateway.app.exchanges and next(iter(gateway.app.exchanges)).held_back)
                (exchange,) = gateway.app.exchanges
                # what the gateway holds for this caller stays small, and the engine has to wait
                assert exchange.connection.transport.get_write_buffer_size() < 2 << 20
                await until(lambda: len(gateway.rows) == 1)
                assert gateway.rows[0].error_code == "caller_too_slow"
                # sockets hold a few megabytes; without a brake it would be hundreds
                assert sent < 32 << 20
                await until(lambda: engine.calls[0].gone.is_set())

    run(main())


def test_a_slow_caller_gets_all_of_it(monkeypatch):
    texts = [f"{number}-" + "y" * 200_000 for number in range(100)]

    async def main():
        async with Upstream(stream(*texts)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                client.writer.transport.pause_reading()
                client.write(gateway.head_of(PATH, STREAM))
                await until(lambda: gateway.app.exchanges and next(iter(gateway.app.exchanges)).held_back)
                client.writer.transport.resume_reading()
                assert (await client.reply()).text == "".join(texts)

    run(main())


def test_streams_one_after_another_are_braked_each():
    texts = ["y" * 200_000] * 60

    async def main():
        async with Upstream(stream(*texts)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                client.writer.transport.pause_reading()
                client.write(gateway.head_of(PATH, STREAM) * 3)
                await until(lambda: gateway.app.exchanges and next(iter(gateway.app.exchanges)).held_back)
                (connection,) = gateway.app.connections
                client.writer.transport.resume_reading()
                most = 0
                for _ in range(3):
                    assert (await client.reply()).text == "".join(texts)
                    most = max(most, connection.transport.get_write_buffer_size())
                assert most < 2 << 20

    run(main())


def test_requests_sent_far_ahead_are_not_read_until_it_is_their_turn():
    async def main():
        async with Upstream(silent) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            big = compact({"model": "qwen3-8b", "messages": [], "pad": "x" * 100_000})
            async with gateway.client() as client:
                client.write(gateway.head_of(PATH, BODY))
                client.write(gateway.head_of(PATH, big) * 6)
                await until(lambda: len(engine.calls) == 1)
                (connection,) = gateway.app.connections
                await until(lambda: connection.paused)
                assert len(connection.ahead) < 6
            # that it has gone is seen although it is not read
            await until(lambda: gateway.rows)
            await until(lambda: engine.calls[0].gone.is_set())

    run(main())


def test_a_pipeline_with_a_fault_in_it_is_answered_up_to_the_fault():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                client.write(
                    gateway.head_of(PATH, BODY) * 2 + b"nonsense\r\n\r\n" + gateway.head_of(PATH, BODY)
                )
                assert (await client.reply()).status == 200
                assert (await client.reply()).status == 200
                assert (await client.reply()).status == 400
                assert await client.closed()
            assert len(engine.calls) == 2

    run(main())


def test_a_drain_ends_idle_connections_and_finishes_the_others():
    async def main():
        async with Upstream(stream("a", "b", "c", pause_s=0.05)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as idle, gateway.client() as busy:
                busy.write(gateway.head_of(PATH, STREAM))
                await until(lambda: engine.calls)
                draining = asyncio.create_task(gateway.app.drain(5))
                assert await idle.closed()
                reply = await busy.reply()
                assert reply.text == "abc"
                assert await busy.closed()
                await draining

    run(main())


def test_large_answers_pass_in_pieces_and_are_counted():
    async def main():
        value = {
            "object": "list",
            "model": "bge",
            "data": [{"index": n, "embedding": [0.1234567] * 1024} for n in range(100)],
            "usage": {"prompt_tokens": 900, "total_tokens": 900},
        }
        async with Upstream(whole(value)) as engine, Gateway() as gateway:
            gateway.add_route("embed", {"base_url": engine.url, "model": "bge"})
            raw = gateway.head_of("/v1/embeddings", compact({"model": "embed", "input": ["a"]}))
            for old in (False, True):
                sent = raw.replace(b"HTTP/1.1", b"HTTP/1.0") if old else raw
                reply = await gateway.send(sent)
                assert reply.json == {**value, "model": "embed"}
                assert int(reply.headers["content-length"]) == len(reply.body)
            row = gateway.rows[0]
            assert (row.prompt_tokens, row.completion_tokens, row.tokens_source) == (900, 0, "engine")
            body = json.dumps(value).encode()

            async def chunks(call):
                from tests.support.upstream import chunk, head

                call.writer.write(head(transfer_encoding="chunked") + b"\r\n")
                for at in range(0, len(body), 50_000):
                    call.writer.write(chunk(body[at : at + 50_000]))
                    await call.writer.drain()
                    await asyncio.sleep(0.001)
                call.writer.write(b"0\r\n\r\n")

            engine.answer = chunks
            reply = await gateway.send(raw)
            assert reply.json == {**value, "model": "embed"}
            reply = await gateway.send(raw.replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert reply.json == {**value, "model": "embed"}
            assert [row.prompt_tokens for row in gateway.rows] == [900] * 4

    run(main())
