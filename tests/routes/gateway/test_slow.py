"""Callers and engines that send or read a byte now and then, or never: each ends, none holds others up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from bench.processes import memory_mb
from routes.gateway import protocol
from tests.routes.usage.support import clear
from tests.support.gateway import Gateway, request, run, until
from tests.support.gateway_process import GatewayProcess, upstream_thread, wait_for
from tests.support.route_factories import KeyFactory, OutsideTargetFactory, RouteFactory
from tests.support.upstream import Call, Upstream, chunk, compact, delta, head, stream

PATH = "/v1/chat/completions"
BODY = compact({"model": "qwen3-8b", "messages": [{"role": "user", "content": "hi"}]})
STREAM = compact({"model": "qwen3-8b", "messages": [], "stream": True})
#: between two bytes of somebody slow; each of the bounds below is far longer
DRIP_S = 0.02


def endless(data: bytes, unit: bytes) -> Iterator[bytes]:
    yield data
    while True:
        yield unit


def slow_requests(gateway: Gateway) -> dict[str, Iterator[bytes]]:
    """Requests that come a byte at a time and never end."""
    whole = gateway.head_of(PATH, BODY)
    top = gateway.head_of(PATH, b"", "transfer-encoding: chunked")
    return {
        "the first line": endless(b"GET /", b"a"),
        "a header": endless(b"GET / HTTP/1.1\r\nhost: a\r\na: ", b"b"),
        "empty lines": endless(b"", b"\r\n"),
        "a body": endless(whole[:-60], b" "),
        "a chunk": endless(top + b"ffff\r\n", b" "),
        "an extension of a chunk": endless(top + b"ff;", b"a"),
        "trailers": endless(top + b"%x\r\n%b\r\n0\r\na: " % (len(BODY), BODY), b"b"),
    }


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bound is as long, and one between two bytes never ends those who send one in time."""
    monkeypatch.setattr(protocol, "HEAD_S", 0.4)
    monkeypatch.setattr(protocol, "BODY_TOTAL_S", 0.4)
    monkeypatch.setattr(protocol, "LINGER_S", 0.2)


async def drip(writer: asyncio.StreamWriter, pieces: Iterator[bytes]) -> None:
    with suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(DRIP_S)


@asynccontextmanager
async def dripping(writer: asyncio.StreamWriter, pieces: Iterator[bytes]) -> AsyncIterator[None]:
    task = asyncio.create_task(drip(writer, pieces))
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("what", list(slow_requests(Gateway())))
def test_a_request_that_comes_byte_by_byte_and_does_not_end_is_given_up(short, what):
    async def main():
        async with Upstream() as engine, Gateway() as gateway, gateway.client() as client:
            gateway.add_route("qwen3-8b", engine.url)
            async with dripping(client.writer, slow_requests(gateway)[what]):
                reply = await client.reply()
                assert (reply.status, reply.error["code"]) == (408, "request_timeout")
                await until(lambda: not gateway.app.connections)
            assert not engine.calls

    run(main())


def test_the_next_request_of_a_connection_has_no_longer(short):
    async def main():
        async with Upstream() as engine, Gateway() as gateway, gateway.client() as client:
            gateway.add_route("qwen3-8b", engine.url)
            async with dripping(client.writer, endless(gateway.head_of(PATH, BODY) * 2 + b"POST /", b"a")):
                assert [(await client.reply()).status for _ in range(3)] == [200, 200, 408]

    run(main())


def test_many_who_drip_hold_nobody_up(short):
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            kinds = list(slow_requests(gateway))
            tasks, writers = [], []
            for number in range(210):
                _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                pieces = slow_requests(gateway)[kinds[number % len(kinds)]]
                writers.append(writer)
                tasks.append(asyncio.create_task(drip(writer, pieces)))
            for _ in range(30):
                assert (await gateway.chat()).status == 200
            # none of them is left, whatever they send
            await until(lambda: not gateway.app.connections)
            assert gateway.app.body_bytes == 0
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in writers:
                writer.close()
            assert len(engine.calls) == 30

    run(main())


@pytest.mark.django_db(transaction=True)
def test_callers_that_never_read_cost_no_memory_and_brake_the_engine(tmp_path):
    callers, sent = 40, 0

    async def long(call: Call) -> None:
        nonlocal sent
        call.writer.write(head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n")
        event = chunk(delta("x" * 30_000))
        while not call.gone.is_set():
            call.writer.write(event)
            sent += len(event)
            await call.writer.drain()
            await asyncio.sleep(0)

    async def main(gateway: GatewayProcess, key: str) -> None:
        raw = request("POST", PATH, STREAM, f"authorization: Bearer {key}")
        held = []
        for _ in range(callers):
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1 << 10)
            writer.transport.pause_reading()
            writer.write(raw)
            held.append(writer)
        # the engine stands still once every buffer on the way is full
        before = -1
        while before != sent or not sent:
            before = sent
            await asyncio.sleep(0.5)
        for writer in held:
            writer.transport.abort()

    with upstream_thread(long) as engine:
        OutsideTargetFactory(route=RouteFactory(name="qwen3-8b"), base_url=engine.url)
        key = KeyFactory().secret
        gateway = GatewayProcess(tmp_path).start()
        try:
            engine.answer, answer = stream("a"), engine.answer
            for _ in range(20):
                assert gateway.chat(key, stream=True).status_code == 200
            engine.answer = answer
            pids = [gateway.process.pid]
            begun = memory_mb(pids)
            run(main(gateway, key), 110)
            # sockets hold some megabytes for each; the gateway a fraction of one
            assert memory_mb(pids) - begun < callers * 0.5
            assert sent < callers * (16 << 20)
            # they have gone, and with them what they asked for
            wait_for(lambda: all(call.gone.is_set() for call in engine.calls))
        finally:
            gateway.stop()
    clear()


def test_an_engine_that_drips_its_head_does_not_begin_an_answer():
    async def answer(call: Call) -> None:
        call.writer.write(b"HTTP/1.1 200 OK\r\na: ")
        await drip(call.writer, endless(b"", b"b"))

    async def main():
        async with Upstream(answer) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url, first_byte_s=0.3)
            reply = await gateway.chat()
            assert (reply.status, reply.error["code"]) == (504, "upstream_first_byte_timeout")
            await until(lambda: engine.calls[0].gone.is_set())

    run(main())


@pytest.mark.parametrize("streamed", [False, True])
def test_an_engine_that_drips_an_answer_without_an_end_has_the_total_time(streamed):
    async def answer(call: Call) -> None:
        kind = "text/event-stream" if streamed else "application/json"
        call.writer.write(head(kind=kind, transfer_encoding="chunked") + b"\r\n")
        await drip(call.writer, endless(chunk(b'data: {"a'), chunk(b"a")))

    async def main():
        async with Upstream(answer) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url, idle_s=0.3, total_s=0.6)
            reply = await gateway.chat(stream=streamed)
            assert (reply.status, reply.error["code"]) == (504, "upstream_total_timeout")
            await until(lambda: engine.calls[0].gone.is_set())
            assert len(gateway.rows) == 1

    run(main())


def test_an_engine_that_is_slow_and_steady_is_waited_for():
    words = [f"{number} " for number in range(30)]

    async def main():
        async with Upstream(stream(*words, pause_s=0.05)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url, first_byte_s=0.5, idle_s=0.5)
            reply = await gateway.chat(stream=True)
            assert (reply.text, reply.events[-1]) == ("".join(words), "[DONE]")
            assert gateway.rows[0].tokens_source == "engine"

    run(main())


def test_an_engine_that_reads_no_request_is_given_up():
    async def main():
        kept: list[asyncio.StreamWriter] = []

        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()
            kept.append(writer)

        server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1 << 10)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Gateway() as gateway:
            gateway.add_route("qwen3-8b", url, first_byte_s=0.4)
            body = BODY[:-1] + b',"image":"' + b"a" * (20 << 20) + b'"}'
            async with gateway.client() as client:
                client.write(gateway.head_of(PATH, body))
                reply = await client.reply()
                assert (reply.status, reply.error["code"]) == (504, "upstream_first_byte_timeout")
            await until(lambda: gateway.app.body_bytes == 0)
        server.close()
        for writer in kept:
            writer.transport.abort()

    run(main())
