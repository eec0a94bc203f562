"""Requests and answers made of noise: whatever comes, the gateway stays whole and answers in its own words.

KVADMIN_TEST_FUZZ says how many of each are tried; a handful by default, for hours by command.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from tests.support.gateway import Client, Gateway, request, run, until
from tests.support.upstream import (
    DONE,
    Call,
    Upstream,
    chunk,
    compact,
    delta,
    head,
    stream,
    usage_event,
    whole,
)

COUNT = int(os.environ.get("KVADMIN_TEST_FUZZ", "150"))
PATH = "/v1/chat/completions"
BODY = compact({"model": "qwen3-8b", "messages": [{"role": "user", "content": "hi"}], "stream": True})
PIECES = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b":",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"transfer-encoding: identity\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: websocket\r\n",
    b"Content-Encoding: gzip\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    b"data: [DONE]\n\n",
    b'data: {"error": {"message": "x", "code": 500}}\n\n',
    b'{"model":',
    b"\xff\xfe",
    "\u2028🙂".encode(),
]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Some of its bytes changed, dropped, doubled, or mixed with what matters in HTTP."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(6):
            case 0 if at < len(out):
                out[at] = chance.randrange(256)
            case 1:
                del out[at : at + chance.randint(1, 20)]
            case 2:
                out[at:at] = chance.choice(PIECES)
            case 3:
                out[at:at] = out[at : at + chance.randint(1, 60)]
            case 4:
                out[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 8)))
            case _:
                del out[at:]
    return bytes(out)


def pieces(data: bytes, chance: random.Random) -> list[bytes]:
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(0, 6)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


async def send_and_see(client: Client, parts: list[bytes]) -> bytes:
    transport = client.writer.transport
    for part in parts:
        if not transport.is_closing():
            transport.write(part)
            await asyncio.sleep(0)
    await asyncio.sleep(0.005)
    if not transport.is_closing():
        transport.write_eof()
    try:
        return await asyncio.wait_for(client.reader.read(-1), 20)
    except ConnectionError:
        return b""


def well_formed(data: bytes) -> None:
    """Every answer begins as one, and says nothing of the code's own failures."""
    assert not data or data.startswith(b"HTTP/1.1 ")
    for line in data.split(b"\r\n"):
        if line.startswith(b"HTTP/1.1 "):
            status = int(line[9:12])
            assert status in {100, 200, 204} or 400 <= status < 600
    assert b"internal_error" not in data
    assert b"Traceback" not in data


@pytest.mark.timeout(600 + COUNT)
def test_requests_of_noise_are_answered_or_dropped():
    chance = random.Random(20260101)

    async def main():
        async with Upstream(stream("a", "b")) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            auth = f"authorization: Bearer {gateway.secret}"
            sources = [
                gateway.head_of(PATH, BODY),
                gateway.head_of(PATH, BODY) * 3,
                request("POST", PATH, b"", auth, "transfer-encoding: chunked")
                + b"%x\r\n%b\r\n0\r\nx: y\r\n\r\n" % (len(BODY), BODY),
                request("GET", "/v1/models", b"", auth),
            ]
            for _ in range(COUNT):
                raw = mutated(chance.choice(sources), chance)
                async with gateway.client() as client:
                    well_formed(await send_and_see(client, pieces(raw, chance)))
            # and it is as before
            await until(lambda: not gateway.app.exchanges)
            assert (await gateway.chat()).status == 200
            gateway.check()

    run(main(), 60 + COUNT)


@pytest.mark.timeout(600 + COUNT)
@pytest.mark.parametrize("streamed", [False, True])
def test_answers_of_noise_reach_the_caller_as_answers(streamed):
    chance = random.Random(20260102 + streamed)
    events = b"".join(chunk(event) for event in (delta("a"), delta("b"), usage_event(), DONE))
    source = head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n" + events + b"0\r\n\r\n"
    if not streamed:
        body = compact({"model": "qwen3-8b", "choices": [], "usage": {"prompt_tokens": 1}})
        source = head(content_length=str(len(body))) + b"\r\n" + body

    async def noise(call: Call) -> None:
        for part in pieces(mutated(source, chance), chance):
            call.writer.write(part)
            await asyncio.sleep(0)
        if chance.random() < 0.8:
            await asyncio.sleep(0.002)
            call.writer.close()

    async def main():
        async with Upstream(noise) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url, first_byte_s=0.3, idle_s=0.3, total_s=2.0)
            for _ in range(COUNT):
                for target in gateway.app.targets.all():
                    target.health.answered()
                async with gateway.client() as client:
                    client.write(gateway.head_of(PATH, BODY, "connection: close"))
                    data = await asyncio.wait_for(client.reader.read(-1), 20)
                assert data.startswith(b"HTTP/1.1 ")
                assert b"internal_error" not in data
            assert len(gateway.rows) == COUNT
            engine.answer = stream("fine") if streamed else whole()
            for target in gateway.app.targets.all():
                target.health.answered()
            assert (await gateway.chat(stream=streamed)).status == 200
            gateway.check()

    run(main(), 60 + COUNT)
