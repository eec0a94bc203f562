"""Answers that are right by HTTP and not what was asked for: packed ones, empty ones, odd headers."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from routes.gateway import packed
from tests.support.gateway import Gateway, run, until
from tests.support.upstream import DONE, Call, Upstream, chat, chunk, compact, delta, head, usage_event

VALUE = chat("own", "こんにちは 📦" * 50)


def bare(data: bytes) -> bytes:
    made = zlib.compressobj(wbits=-15)
    return made.compress(data) + made.flush()


PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    "deflate ": bare,
    # several members, one behind the other
    " gzip": lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:90]) + gzip.compress(data[90:]),
}


def given(
    body: bytes, coding: str, framing: str, status: int = 200, kind: str = "application/json", size: int = 0
):
    """``size``: the body comes in pieces of so many bytes."""

    async def answer(call: Call) -> None:
        assert call.headers["accept-encoding"] == "identity"
        headers = {"content_encoding": coding, "x_own": "kept"}
        if framing == "length":
            headers["content_length"] = str(len(body))
        elif framing == "chunks":
            headers["transfer_encoding"] = "chunked"
        call.writer.write(head(status, kind, **headers) + b"\r\n")
        step = size or len(body)
        for at in range(0, len(body), step):
            part = body[at : at + step]
            call.writer.write(chunk(part) if framing == "chunks" else part)
            await call.writer.drain()
            if size:
                await asyncio.sleep(0)
        if framing == "chunks":
            call.writer.write(b"0\r\n\r\n")
        elif framing == "close":
            call.writer.close()

    return answer


@pytest.mark.parametrize("framing", ["length", "chunks", "close"])
@pytest.mark.parametrize("coding", list(PACKERS))
def test_a_packed_answer_arrives_plain_and_is_counted(coding, framing):
    body = PACKERS[coding](compact(VALUE))

    async def main():
        for size in (0, 1, 7):
            async with Upstream(given(body, coding, framing, size=size)) as engine, Gateway() as gateway:
                gateway.add_route("qwen3-8b", {"base_url": engine.url, "model": "own"})
                # the second may not be taken for a repetition of the first
                for _ in range(2):
                    reply = await gateway.chat()
                    assert (reply.status, reply.json) == (200, {**VALUE, "model": "qwen3-8b"})
                    assert "content-encoding" not in reply.headers
                    assert reply.headers["x-own"] == "kept"
                for row in gateway.rows:
                    counted = (row.prompt_tokens, row.completion_tokens, row.tokens_source)
                    assert counted == (7, 3, "engine")

    run(main())


def test_a_large_packed_answer_passes_whole():
    value = {**VALUE, "pad": [str(number) for number in range(400_000)]}
    body = gzip.compress(compact(value))

    async def main():
        async with Upstream(given(body, "gzip", "length", size=50_000)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", {"base_url": engine.url, "model": "own"})
            assert (await gateway.chat()).json == {**value, "model": "qwen3-8b"}

    run(main())


@pytest.mark.parametrize("size", [0, 1, 13])
def test_a_packed_stream_arrives_event_by_event_and_is_counted(size):
    events = [delta("", "own"), delta("包裹", "own"), delta(" 📦", "own"), usage_event("own"), DONE]
    body = gzip.compress(b"".join(events))

    async def main():
        answer = given(body, "gzip", "chunks", kind="text/event-stream", size=size)
        async with Upstream(answer) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", {"base_url": engine.url, "model": "own"})
            reply = await gateway.chat(stream=True)
            assert (reply.text, reply.events[-1]) == ("包裹 📦", "[DONE]")
            assert {event["model"] for event in reply.events[:-1]} == {"qwen3-8b"}
            row = gateway.rows[0]
            assert (row.prompt_tokens, row.completion_tokens, row.tokens_source) == (7, 3, "engine")

    run(main())


def test_a_packed_error_is_read():
    body = gzip.compress(
        compact({"error": {"message": "maximum context length is 5", "type": "x", "code": 400}})
    )

    async def main():
        async with Upstream(given(body, "gzip", "length", 400)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat()
            assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")

    run(main())


@pytest.mark.parametrize(
    ("coding", "body", "said"),
    [
        ("br", b"\x0b\x02\x80", "packed as 'br'"),
        ("gzip, br", gzip.compress(b"{}", mtime=0), "packed as 'gzip, br'"),
        ("gzip", b"{}", "not packed as its head says"),
        ("gzip", gzip.compress(compact(VALUE))[:-9], "before it was complete"),
        ("gzip", gzip.compress(compact(VALUE)) + b"more", "not packed as its head says"),
        ("gzip", gzip.compress(b" " * (packed.MOST + 1)), "once unpacked"),
    ],
)
def test_what_cannot_be_unpacked_is_a_fault_of_the_engine(coding, body, said):
    async def main():
        async with Upstream(given(body, coding, "length")) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat()
            assert (reply.status, reply.error["code"]) == (502, "upstream_cut")
            assert said in reply.error["message"]
            assert gateway.rows[0].tokens_source == ""

    run(main())


def test_another_target_answers_for_one_that_packs_as_nobody_can_read():
    async def main():
        async with Upstream(given(b"x", "br", "length")) as odd, Upstream() as good, Gateway() as gateway:
            gateway.add_route("qwen3-8b", odd.url, good.url)
            for _ in range(4):
                assert (await gateway.chat()).status == 200

    run(main())


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (204, head(204) + b"\r\n"),
        (200, head(content_length="0") + b"\r\n"),
        (200, head(transfer_encoding="chunked") + b"\r\n0\r\n\r\n"),
        (200, head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n0\r\n\r\n"),
        (
            200,
            head(kind="text/event-stream", transfer_encoding="chunked")
            + b"\r\n"
            + chunk(DONE)
            + b"0\r\n\r\n",
        ),
    ],
)
def test_an_answer_that_says_nothing_costs_nothing(status, raw):
    async def answer(call: Call) -> None:
        call.writer.write(raw)

    async def main():
        async with Upstream(answer) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat()
            assert reply.status == status
            await until(lambda: gateway.rows)
            (row,) = gateway.rows
            assert (row.prompt_tokens, row.completion_tokens, row.tokens_source) == (0, 0, "")
            assert gateway.limits.grants[0].settled == 0

    run(main())


def test_headers_of_the_engines_own_connection_stay_there():
    body = compact(VALUE)

    async def answer(call: Call) -> None:
        lines = {
            "x_hop": "1",
            "x_own": "2",
            "keep_alive": "timeout=5",
            "connection": "keep-alive, X-Hop , x-none",
        }
        call.writer.write(head(content_length=str(len(body)), **lines) + b"\r\n" + body)

    async def main():
        async with Upstream(answer) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            for _ in range(2):
                reply = await gateway.chat()
                assert reply.headers["x-own"] == "2"
                assert not {"x-hop", "keep-alive", "connection"} & reply.headers.keys()
            # and it is kept
            assert engine.connections == 1

    run(main())
