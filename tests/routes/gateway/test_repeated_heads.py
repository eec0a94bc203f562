"""Requests with the same head on one connection: each is answered by its own body, and judged anew."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import time

from routes.gateway import protocol
from routes.gateway.protocol import ServerProtocol
from tests.support.gateway import Gateway, run
from tests.support.upstream import Answer, Call, Upstream, chat, compact, delta, head, stream, whole

PATH = "/v1/chat/completions"


def body(text: str, **more: object) -> bytes:
    return compact({"model": "qwen3-8b", "messages": [{"role": "user", "content": text}], **more})


def change(gateway: Gateway, **fields: object) -> None:
    """Give the key another record, as the snapshot does when its row changed."""
    key = dataclasses.replace(gateway.key, **fields)
    gateway.key = gateway.snapshot.keys[key.public_id] = gateway.snapshot.by_id[key.id] = key


def counted(monkeypatch) -> list[int]:
    """How many bodies were taken without the parser."""
    taken: list[int] = []
    again = ServerProtocol._again

    def watched(self, data):
        found = again(self, data)
        taken.extend([len(data)] if found else [])
        return found

    monkeypatch.setattr(ServerProtocol, "_again", watched)
    return taken


def test_each_request_has_its_own_body_and_answer(monkeypatch):
    taken = counted(monkeypatch)

    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                texts = ["a", "bb" * 40, "", "c" * 5000, "ä€😀"]
                for text in texts:
                    client.write(gateway.head_of(PATH, body(text)))
                    assert (await client.reply()).status == 200
                assert [call.json["messages"][0]["content"] for call in engine.calls] == texts
                assert len(taken) == len(texts) - 1
                # one behind another, and one in two pieces, are the parser's
                twice = gateway.head_of(PATH, body("d"))
                client.write(twice + twice)
                assert [(await client.reply()).status for _ in range(2)] == [200, 200]
                assert len(engine.calls) == len(texts) + 2
                assert len(taken) == len(texts) - 1
            assert len({row.request_id for row in gateway.rows}) == len(gateway.rows) == len(texts) + 2

    run(main())


def test_a_key_that_changed_is_judged_anew():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            gateway.add_route("other", engine.url)
            async with gateway.client() as client:

                async def ask() -> tuple[int, str]:
                    client.write(gateway.head_of(PATH, body("hi")))
                    reply = await client.reply()
                    return reply.status, reply.error["code"] if reply.status >= 400 else ""

                assert await ask() == (200, "")
                change(gateway, models=frozenset({"other"}))
                assert await ask() == (403, "model_not_allowed")
                change(gateway, models=None)
                assert await ask() == (200, "")
                change(gateway, ends_at=time.time() + 0.2)
                assert await ask() == (200, "")
                while time.time() < gateway.key.ends_at:
                    await gateway.chat()
                assert await ask() == (401, "key_expired")
                change(gateway, ends_at=None, state="disabled")
                assert await ask() == (401, "key_disabled")
                change(gateway, state="revoked")
                assert await ask() == (401, "key_revoked")
                del gateway.snapshot.keys[gateway.key.public_id], gateway.snapshot.by_id[gateway.key.id]
                assert await ask() == (401, "invalid_api_key")

    run(main())


def test_another_key_on_the_same_connection_is_another_caller():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            second = gateway.add_key(business_id=2)
            async with gateway.client() as client:
                for key in (gateway.secret, gateway.secret, second, gateway.secret, second, second):
                    client.write(gateway.head_of(PATH, body("hi"), key=key))
                    assert (await client.reply()).status == 200
            assert [row.business_id for row in gateway.rows] == [1, 1, 2, 1, 2, 2]

    run(main())


def test_an_engine_that_answers_alike_and_then_otherwise_is_understood():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                for answer, status in (
                    (whole(), 200),
                    (whole(), 200),
                    (whole({"object": "error", "message": "no", "code": 400}, 400), 400),
                    (whole(), 200),
                    (whole(x_extra="1"), 200),
                    (whole(x_extra="1"), 200),
                ):
                    engine.answer = answer
                    client.write(gateway.head_of(PATH, body("hi")))
                    reply = await client.reply()
                    assert (reply.status, reply.headers.get("x-extra")) == (
                        status,
                        "1" if len(engine.calls) > 4 else None,
                    )
            assert [row.prompt_tokens for row in gateway.rows] == [7, 7, 0, 7, 7, 7]

    run(main())


def test_whole_chunks_pass_with_their_frame_and_others_are_read():
    texts = ["Die Antwort", " ist", " 42 " + "x" * 3000, "", " 你好"]

    async def main():
        async with Upstream(stream(*texts)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            for renamed in (False, True):
                if renamed:
                    gateway.add_route("mine", {"base_url": engine.url, "model": "qwen3-8b"})
                name = "mine" if renamed else "qwen3-8b"
                reply = await gateway.chat(stream=True, model=name)
                events = [json.loads(part[6:]) for part in reply.body.decode().split("\n\n")[:-2]]
                assert "".join(
                    event["choices"][0]["delta"].get("content", "") for event in events
                ) == "".join(texts)
                assert {event["model"] for event in events} == {name}
                assert reply.body.endswith(b"data: [DONE]\n\n")
            engine.answer = stream(
                events=[delta("a"), delta("b"), b'data: {"error":{"message":"out of memory","code":500}}\n\n']
            )
            reply = await gateway.chat(stream=True)
            assert "out of memory" in reply.body.decode()
            row = gateway.rows[-1]
            assert (row.error_layer, row.tokens_source) == ("engine", "estimated")

    run(main())


def apart(value: object = None) -> Answer:
    """As uvicorn answers: the head in one write, the body in another."""

    async def answer(call: Call) -> None:
        body = compact(chat(call.json["model"]) if value is None else value)
        call.writer.write(head(200, content_length=str(len(body))) + b"\r\n")
        await call.writer.drain()
        await asyncio.sleep(0.02)
        call.writer.write(body)

    return answer


def test_head_and_body_may_come_apart_on_either_side(monkeypatch):
    taken = counted(monkeypatch)

    async def main():
        async with Upstream(apart()) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                for text in ("a", "bb", "c" * 900):
                    raw = gateway.head_of(PATH, body(text))
                    client.write(raw[: -len(body(text))])
                    await asyncio.sleep(0.02)
                    client.write(raw[-len(body(text)) :])
                    assert (await client.reply()).status == 200
            assert [call.json["messages"][0]["content"] for call in engine.calls] == ["a", "bb", "c" * 900]
            assert len(taken) == 2
            assert [row.prompt_tokens for row in gateway.rows] == [7, 7, 7]

    run(main())


def test_a_repeated_request_is_understood_however_it_is_split():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            raw = gateway.head_of(PATH, body("hi"))
            async with gateway.client() as client:
                transport = client.writer.transport
                transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for cut in range(1, len(raw)):
                    client.write(raw[:cut])
                    await asyncio.sleep(0.002)
                    client.write(raw[cut:])
                    assert (await client.reply()).status == 200
            assert {call.body for call in engine.calls} == {body("hi")}
            assert len(engine.calls) == len(gateway.rows) == len(raw) - 1

    run(main())


def test_a_repeated_head_whose_body_never_comes_is_its_keys(monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_S", 0.1)
    monkeypatch.setattr(protocol, "BODY_IDLE_S", 0.1)

    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            raw = gateway.head_of(PATH, body("hi"))
            async with gateway.client() as client:
                client.write(raw)
                assert (await client.reply()).status == 200
                client.write(raw[: -len(body("hi"))])
                reply = await client.reply()
                assert (reply.status, reply.error["code"]) == (408, "request_timeout")
            assert [(row.status, row.key_id) for row in gateway.rows] == [
                (200, gateway.key.id),
                (408, gateway.key.id),
            ]
            assert len(engine.calls) == 1

    run(main())


def test_an_engine_that_goes_behind_a_repeated_head_has_cut_its_answer():
    async def goes(call: Call) -> None:
        call.writer.write(head(200, content_length="241") + b"\r\n")
        await call.writer.drain()
        await asyncio.sleep(0.02)
        call.writer.transport.abort()

    async def main():
        async with Upstream(apart()) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                for _ in range(2):
                    client.write(gateway.head_of(PATH, body("hi")))
                    assert (await client.reply()).status == 200
                engine.answer = goes
                client.write(gateway.head_of(PATH, body("hi")))
                reply = await client.reply()
                assert (reply.status, reply.error["code"]) == (502, "upstream_cut")
            # it had begun to answer: the request is not sent again
            assert len(engine.calls) == 3

    run(main())
