"""A request through the gateway to an engine and back."""

from __future__ import annotations

import asyncio
import json

from tests.support.gateway import Gateway, run
from tests.support.upstream import USAGE, Upstream, stream, whole


def test_a_chat_answer_comes_back_and_is_counted():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            route = gateway.add_route("qwen3-8b", {"base_url": engine.url, "engine_id": 5})
            reply = await gateway.chat()
            assert reply.status == 200
            assert reply.json["choices"][0]["message"]["content"] == "hello"
            assert reply.json["usage"] == USAGE
            assert reply.headers["content-type"] == "application/json"
            assert reply.headers["x-ratelimit-limit-requests"] == "100"
            (row,) = gateway.rows
            assert row.request_id == reply.headers["x-request-id"]
            assert (row.status, row.error_layer, row.error_code) == (200, "", "")
            assert (row.prompt_tokens, row.completion_tokens, row.tokens_source) == (7, 3, "engine")
            assert (row.key_id, row.business_id, row.team_id) == (1, 1, 1)
            assert (row.route_id, row.engine_id, row.model) == (route.id, 5, "qwen3-8b")
            assert (row.path, row.streamed, row.attempts) == ("chat/completions", False, 1)
            assert row.caller == "127.0.0.1"
            assert 0 < row.first_byte_s <= row.total_s
            assert gateway.limits.grants[0].settled == 10

    run(main())


def test_the_body_arrives_byte_for_byte():
    odd = '{"model" : "qwen3-8b",\n "n":1, "n":2,"messages":[{"content":"a\x85b\u2028c\\ud83d 你好"}],'
    body = (odd + '"seed":123456789012345678901234567890, "unknown":{"model":"other"}}').encode()

    async def main():
        async with Upstream(whole(b"{}")) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.send(gateway.head_of("/v1/chat/completions", body))
            assert reply.status == 200
            assert engine.calls[0].body == body

    run(main())


def test_a_stream_comes_back_event_by_event():
    async def main():
        async with Upstream(stream("你", "好", "🙂", pause_s=0.03)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat(stream=True)
            assert reply.status == 200
            assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert reply.text == "你好🙂"
            assert reply.events[-1] == "[DONE]"
            assert len(reply.chunks) >= 4
            (row,) = gateway.rows
            assert row.streamed
            assert (row.prompt_tokens, row.completion_tokens, row.tokens_source) == (7, 3, "engine")
            # the usage was asked for by the gateway alone, and taken out again
            assert engine.calls[0].json["stream_options"] == {"include_usage": True}
            assert not any("usage" in event for event in reply.events[:-1])

    run(main())


def test_the_usage_stays_in_a_stream_for_a_caller_that_asked():
    async def main():
        async with Upstream(stream("a")) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat(stream=True, stream_options={"include_usage": True})
            assert reply.events[-2]["usage"] == USAGE
            assert reply.events[-1] == "[DONE]"

    run(main())


def test_the_model_goes_by_the_callers_name():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route(
                "qwen3-8b", {"base_url": engine.url, "model": "/models/Qwen3 8B"}, aliases=("gpt-4o",)
            )
            for name in ("qwen3-8b", "gpt-4o"):
                engine.answer = whole()
                reply = await gateway.chat(model=name)
                assert engine.calls[-1].json["model"] == "/models/Qwen3 8B"
                assert reply.json["model"] == name
                engine.answer = stream("a", "b")
                reply = await gateway.chat(model=name, stream=True)
                assert {event["model"] for event in reply.events[:-1]} == {name}
            assert {row.model for row in gateway.rows} == {"qwen3-8b"}

    run(main())


def test_the_callers_key_stays_here_and_the_targets_own_goes():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", {"base_url": engine.url, "api_key": "sk-engine"})
            reply = await gateway.chat("x-api-key: other", "cookie: a=b", "x-request-id: mine")
            call = engine.calls[0]
            assert gateway.secret not in call.line + str(call.headers)
            assert call.headers["authorization"] == "Bearer sk-engine"
            assert "cookie" not in call.headers
            assert "x-api-key" not in call.headers
            # two callers may send the same id: the engine is given the gateway's
            assert call.headers["x-request-id"] == reply.headers["x-request-id"]
            assert reply.headers["x-client-request-id"] == "mine"

    run(main())


def test_one_connection_serves_many_requests_in_order():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            body = json.dumps({"model": "qwen3-8b", "messages": []}).encode()
            async with gateway.client() as client:
                client.write(gateway.head_of("/v1/chat/completions", body) * 5)
                client.write(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
                for _ in range(5):
                    assert (await client.reply()).json["model"] == "qwen3-8b"
                assert (await client.reply()).json == {"status": "ok"}
            assert engine.connections == 1
            assert len(gateway.rows) == 5

    run(main())


def test_the_row_is_there_before_the_callers_last_byte():
    async def main():
        async with Upstream(stream("a", then="hang", events=None)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)

            async def until_done(call):
                from tests.support.upstream import DONE, chunk, delta, head

                call.writer.write(head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n")
                call.writer.write(chunk(delta("a")) + chunk(DONE))
                await call.gone.wait()
                call.writer.close()

            engine.answer = until_done
            async with gateway.client() as client:
                body = json.dumps({"model": "qwen3-8b", "messages": [], "stream": True}).encode()
                client.write(gateway.head_of("/v1/chat/completions", body))
                got = b""
                while b"[DONE]" not in got:
                    got += await client.reader.read(65536)
                assert len(gateway.rows) == 1
                await asyncio.sleep(0.05)
                client.abort()
            assert len(gateway.rows) == 1
            assert gateway.rows[0].error_code == ""

    run(main())
