"""Engines that misbehave: what the caller is told, what is tried again, what is counted."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from tests.support.gateway import Gateway, request, run, until
from tests.support.upstream import (
    DONE,
    Upstream,
    chunk,
    compact,
    cut,
    delta,
    head,
    silent,
    stream,
    usage_event,
    whole,
)


def closed_port() -> str:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{holder.getsockname()[1]}"


def test_an_engine_that_refuses_the_connection_is_passed_over():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", closed_port(), engine.url)
            for _ in range(6):
                assert (await gateway.chat()).status == 200
            rows = gateway.rows
            assert all(row.status == 200 and not row.error_code for row in rows)
            # it is asked once, then left alone until its pause is over
            assert sum(row.attempts for row in rows) == 7

    run(main())


def test_all_targets_down_is_503_with_retry_after():
    async def main():
        async with Gateway() as gateway:
            gateway.add_route("qwen3-8b", closed_port(), closed_port())
            gateway.add_route("down", {"base_url": closed_port(), "state": "down"})
            gateway.add_route("none")
            for model in ("qwen3-8b", "qwen3-8b", "down", "none"):
                reply = await gateway.chat(model=model)
                assert reply.status == 503
                assert reply.error["code"] == "no_target_available"
                assert reply.error["layer"] == "gateway"
                assert int(reply.headers["retry-after"]) >= 1
                assert reply.error["request_id"] == reply.headers["x-request-id"]
            assert [row.error_code for row in gateway.rows] == ["no_target_available"] * 4
            assert [row.attempts for row in gateway.rows] == [2, 0, 0, 0]
            assert {grant.settled for grant in gateway.limits.grants} == {0}

    run(main())


def test_a_fallback_takes_over_under_the_callers_name():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", closed_port(), fallback="small")
            gateway.add_route("small", engine.url, fallback="qwen3-8b")
            reply = await gateway.chat()
            assert reply.json["model"] == "qwen3-8b"
            assert engine.calls[0].json["model"] == "small"
            engine.server.close()
            await until(lambda: True)

    run(main())


def test_fallbacks_in_a_circle_end():
    async def main():
        async with Gateway() as gateway:
            gateway.add_route("a", fallback="b")
            gateway.add_route("b", fallback="a")
            assert (await gateway.chat(model="a")).status == 503

    run(main())


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_failing_engine_is_tried_once_and_another_answers(status):
    async def main():
        failing = Upstream(whole({"error": {"message": "boom"}}, status))
        async with failing as bad, Upstream() as good, Gateway() as gateway:
            gateway.add_route("qwen3-8b", bad.url, good.url)
            for _ in range(8):
                assert (await gateway.chat()).status == 200
            assert len(bad.calls) == 3
            assert len(good.calls) == 8

    run(main())


def test_an_ejected_engine_is_brought_back_by_one_probe():
    async def main():
        async with Upstream(whole({"error": {"message": "boom"}}, 500)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            for _ in range(3):
                reply = await gateway.chat()
                assert (reply.status, reply.error["layer"]) == (500, "engine")
            reply = await gateway.chat()
            assert reply.status == 503
            assert "status 500" in reply.error["message"]
            assert len(engine.calls) == 3
            engine.answer = whole()
            (target,) = gateway.app.targets.all()
            target.health.opens_at = 0
            assert (await gateway.chat()).status == 200
            assert target.health.state(time.monotonic()) == "closed"

    run(main())


@pytest.mark.parametrize(
    ("shape", "status", "code"),
    [
        (
            {
                "object": "error",
                "message": "This model's maximum context length is 8 tokens.",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            },
            400,
            "context_length_exceeded",
        ),
        (
            {
                "error": {
                    "message": "This model's maximum context length is 8 tokens.",
                    "type": "BadRequestError",
                    "param": "input_tokens",
                    "code": 400,
                }
            },
            400,
            "context_length_exceeded",
        ),
        ({"error": "This model's maximum context length is 8 tokens."}, 422, "context_length_exceeded"),
    ],
)
def test_a_callers_mistake_passes_through_and_costs_no_health(shape, status, code):
    async def main():
        upstreams = Upstream(whole(shape, status)), Upstream(whole(shape, status))
        async with upstreams[0] as one, upstreams[1] as other, Gateway() as gateway:
            gateway.add_route("qwen3-8b", one.url, other.url)
            for _ in range(8):
                reply = await gateway.chat()
                assert reply.status == status
                assert reply.error["message"] == "This model's maximum context length is 8 tokens."
                assert reply.error["code"] == code
                assert reply.error["layer"] == "engine"
            assert len(one.calls) + len(other.calls) == 8
            assert all(row.attempts == 1 and row.error_layer == "engine" for row in gateway.rows)
            assert all(target.health.failures == 0 for target in gateway.app.targets.all())
            assert {grant.settled for grant in gateway.limits.grants} == {0}

    run(main())


def test_an_engine_that_refuses_our_key_is_no_fault_of_the_callers_key():
    async def main():
        async with Upstream(whole({"error": "Unauthorized"}, 401)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat()
            assert (reply.status, reply.error["code"]) == (502, "target_key_refused")
            async with Upstream() as good:
                gateway.add_route("qwen3-8b", engine.url, good.url)
                for _ in range(4):
                    assert (await gateway.chat()).status == 200

    run(main())


def test_an_engine_without_the_model_or_the_path_is_named():
    async def main():
        missing = {
            "error": {"message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}
        }
        async with Upstream(whole(missing, 404)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", {"base_url": engine.url, "name": "gpu-1:8000"})
            reply = await gateway.chat()
            assert (reply.status, reply.error["code"]) == (502, "target_model_missing")
            assert "gpu-1:8000" in reply.error["message"]
            engine.answer = whole({"detail": "Not Found"}, 404)
            reply = await gateway.chat(path="/v1/score")
            assert (reply.status, reply.error["code"]) == (404, "path_not_served")
            assert "gpu-1:8000" in reply.error["message"]
            assert "/v1/score" in reply.error["message"]
            gateway.add_route("old", {"base_url": engine.url, "name": "gpu-2", "vllm_version": "0.9.1"})
            reply = await gateway.chat(model="old", path="/v1/responses")
            assert (reply.status, reply.error["code"]) == (404, "path_not_served")
            assert "gpu-2 (vLLM 0.9.1)" in reply.error["message"]

    run(main())


def test_a_target_that_redirects_is_set_up_wrongly():
    async def main():
        async with Upstream(whole({}, 307, location="https://elsewhere")) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat()
            assert (reply.status, reply.error["code"]) == (502, "target_redirects")
            assert "location" not in reply.headers

    run(main())


def test_a_limit_that_cannot_be_asked_ends_the_request():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url, total_s=0.1)

            async def breaks():
                raise ZeroDivisionError

            async def hangs():
                await asyncio.sleep(60)

            for answer, status in ((breaks, 500), (hangs, 504)):
                gateway.limits.take = lambda *_, answer=answer: answer()
                assert (await gateway.chat()).status == status
            assert [row.error_code for row in gateway.rows] == ["internal_error", "upstream_total_timeout"]

    run(main())


def test_a_kept_connection_that_was_closed_is_replaced():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            assert (await gateway.chat()).status == 200

            async def closes_the_kept_one(call):
                if call.earlier:
                    call.writer.transport.abort()
                else:
                    await whole()(call)

            engine.answer = closes_the_kept_one
            for _ in range(3):
                assert (await gateway.chat()).status == 200
            assert all(row.attempts == 1 for row in gateway.rows)
            (target,) = gateway.app.targets.all()
            assert target.health.failures == 0

    run(main())


def test_an_engine_that_closes_before_it_answers():
    async def main():
        async with Upstream(cut) as bad, Upstream() as good, Gateway() as gateway:
            gateway.add_route("qwen3-8b", bad.url)
            reply = await gateway.chat()
            assert (reply.status, reply.error["code"]) == (502, "upstream_cut")
            gateway.add_route("both", {"base_url": bad.url}, {"base_url": good.url})
            for _ in range(4):
                assert (await gateway.chat(model="both")).status == 200

    run(main())


def test_an_answer_cut_in_its_middle_is_asked_for_elsewhere():
    async def half(call):
        call.writer.write(head(content_length="100") + b"\r\n{")
        await call.writer.drain()
        call.writer.transport.abort()

    async def main():
        async with Upstream(half) as bad, Upstream() as good, Gateway() as gateway:
            gateway.add_route("qwen3-8b", bad.url, good.url)
            for _ in range(8):
                assert (await gateway.chat()).status == 200
            assert len(bad.calls) == 3

    run(main())


def test_a_stream_that_is_cut_ends_with_an_error_and_no_done():
    async def main():
        async with Upstream(stream("a", "b", then="cut")) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat(stream=True)
            assert reply.status == 200
            assert reply.complete
            assert reply.text == "ab"
            assert reply.events[-1]["error"]["code"] == "upstream_cut"
            assert "[DONE]" not in reply.events
            (row,) = gateway.rows
            assert (row.error_layer, row.error_code) == ("gateway", "upstream_cut")
            assert (row.completion_tokens, row.tokens_source) == (2, "estimated")
            reply = await gateway.chat(path="/v1/messages", stream=True, max_tokens=5)
            assert reply.body.split(b"\n\n")[-2].startswith(b"event: error\ndata: ")
            assert reply.events[-1]["type"] == "error"

    run(main())


def test_half_an_event_is_not_passed_on():
    async def main():
        event = delta("whole")
        async with Upstream(stream(events=[event, event[:40]], then="cut")) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat(stream=True)
            assert reply.text == "whole"
            assert len(reply.events) == 2
            assert "error" in reply.events[-1]

    run(main())


def test_a_count_with_every_event_bills_a_broken_stream():
    async def main():
        async with Upstream(stream("a", "b", "c", then="cut")) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url, continuous_usage=True)
            reply = await gateway.chat(stream=True)
            assert reply.text == "abc"
            assert not any("usage" in event for event in reply.events)
            (row,) = gateway.rows
            assert (row.prompt_tokens, row.completion_tokens, row.tokens_source) == (7, 3, "partial")
            assert gateway.limits.grants[0].settled == 10

    run(main())


def test_an_engine_that_dies_before_the_first_event_is_replaced():
    async def dies(call):
        call.writer.write(head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n")
        await call.writer.drain()
        await asyncio.sleep(0.05)
        call.writer.transport.abort()

    async def main():
        async with Upstream(dies) as bad, Upstream(stream("fine")) as good, Gateway() as gateway:
            gateway.add_route("qwen3-8b", bad.url, good.url)
            for _ in range(3):
                assert (await gateway.chat(stream=True)).text == "fine"

    run(main())


def test_an_error_event_within_a_stream_is_recognised():
    error = b"data: " + compact({"error": {"message": "boom", "type": "InternalServerError", "code": 500}})

    async def main():
        answer = stream(events=[delta("a"), error + b"\n\n", DONE])
        async with Upstream(answer) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat(stream=True)
            assert reply.status == 200
            assert reply.events[1]["error"]["message"] == "boom"
            (row,) = gateway.rows
            assert (row.status, row.error_layer, row.error_code) == (200, "engine", "engine_error")

    run(main())


def test_an_error_in_the_first_event_becomes_the_answer():
    error = b"data: " + compact({"error": {"message": "too long", "type": "BadRequestError", "code": 400}})

    async def main():
        async with Upstream(stream(events=[error + b"\n\n", DONE])) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat(stream=True)
            assert (reply.status, reply.error["message"], reply.error["layer"]) == (400, "too long", "engine")
            assert gateway.rows[0].tokens_source == ""

    run(main())


@pytest.mark.parametrize("streamed", [False, True])
def test_an_engine_that_stays_silent_is_given_up(streamed):
    async def main():
        async with Upstream(silent) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url, first_byte_s=0.1)
            reply = await gateway.chat(stream=streamed)
            assert (reply.status, reply.error["code"]) == (504, "upstream_first_byte_timeout")
            await until(lambda: engine.calls[0].gone.is_set())
            async with Upstream() as good:
                gateway.add_route("qwen3-8b", engine.url, good.url, first_byte_s=0.1)
                assert (await gateway.chat()).status == 200

    run(main())


def test_a_stream_that_falls_silent_ends_with_an_error():
    async def main():
        async with Upstream(stream("a", then="hang")) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url, idle_s=0.1)
            reply = await gateway.chat(stream=True)
            assert reply.events[-1]["error"]["code"] == "upstream_idle_timeout"
            await until(lambda: engine.calls[0].gone.is_set())

    run(main())


def test_the_total_time_is_bounded():
    async def main():
        async with Upstream(stream(*"abcdefgh" * 20, pause_s=0.03)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url, total_s=0.2)
            reply = await gateway.chat(stream=True)
            assert reply.events[-1]["error"]["code"] == "upstream_total_timeout"
            await until(lambda: engine.calls[0].gone.is_set())
            engine.answer = silent
            reply = await gateway.chat()
            assert (reply.status, reply.error["code"]) == (504, "upstream_total_timeout")

    run(main())


def test_a_connect_that_takes_too_long_has_its_own_error():
    async def main():
        with socket.socket() as full:
            # a queue of one that nobody empties takes no further connection
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            holders = [socket.socket() for _ in range(3)]
            for holder in holders:
                holder.setblocking(False)
                holder.connect_ex(full.getsockname())
            async with Gateway() as gateway:
                gateway.add_route("qwen3-8b", f"http://127.0.0.1:{full.getsockname()[1]}", connect_s=0.2)
                reply = await gateway.chat()
                assert (reply.status, reply.error["code"]) == (504, "upstream_connect_timeout")
            for holder in holders:
                holder.close()

    run(main())


def test_the_caller_goes_and_the_engine_is_told():
    async def main():
        async with Upstream(silent) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            for streamed in (False, True):
                async with gateway.client() as client:
                    body = compact({"model": "qwen3-8b", "messages": [], "stream": streamed})
                    client.write(gateway.head_of("/v1/chat/completions", body))
                    await until(lambda count=1 + streamed: len(engine.calls) == count)
                    client.abort()
                await until(lambda: engine.calls[-1].gone.is_set())
            assert [row.error_code for row in gateway.rows] == ["caller_gone"] * 2
            assert {row.error_layer for row in gateway.rows} == {"caller"}
            assert {row.tokens_source for row in gateway.rows} == {"estimated"}
            engine.answer = stream("a", "b", then="hang")
            async with gateway.client() as client:
                body = compact({"model": "qwen3-8b", "messages": [], "stream": True})
                client.write(gateway.head_of("/v1/chat/completions", body))
                await client.reader.readuntil(b'"b"')
                client.abort()
            await until(lambda: engine.calls[-1].gone.is_set())
            await until(lambda: len(gateway.rows) == 3)
            assert (gateway.rows[-1].completion_tokens, gateway.rows[-1].tokens_source) == (2, "estimated")

    run(main())


def test_the_engines_final_count_is_believed_even_when_the_caller_goes():
    async def counted(call):
        call.writer.write(head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n")
        call.writer.write(chunk(delta("")) + chunk(delta("a")) + chunk(usage_event()))
        await call.gone.wait()
        call.writer.close()

    async def main():
        async with Upstream(counted) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                body = compact({"model": "qwen3-8b", "messages": [], "stream": True})
                client.write(gateway.head_of("/v1/chat/completions", body))
                await client.reader.readuntil(b'"a"')
                await asyncio.sleep(0.05)
                client.abort()
            await until(lambda: len(gateway.rows) == 1)
            assert (gateway.rows[0].completion_tokens, gateway.rows[0].tokens_source) == (3, "engine")

    run(main())


@pytest.mark.parametrize("status", [301, 302, 304, 307])
def test_an_engine_that_sends_callers_elsewhere_is_passed_over(status):
    async def main():
        async with (
            Upstream(whole({}, status, location="http://10.0.0.5/login")) as astray,
            Upstream() as good,
            Gateway() as gateway,
        ):
            gateway.add_route("alone", astray.url)
            reply = await gateway.chat(model="alone")
            assert (reply.status, reply.error["code"]) == (502, "target_redirects")
            assert "location" not in reply.headers
            assert gateway.rows[0].prompt_tokens == 0
            gateway.add_route("both", {"base_url": astray.url, "weight": 1000}, good.url)
            assert (await gateway.chat(model="both")).status == 200
            astray.answer = whole(b"x" * 300_000, status)
            assert (await gateway.chat(model="alone")).error["code"] == "target_redirects"

    run(main())


def test_the_head_of_an_answer_is_alone_however_large_it_is():
    async def large(call):
        call.writer.write(head(content_length="600000") + b"\r\n" + b" " * 600_000)

    async def events(call):
        call.writer.write(head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n")
        call.writer.write(chunk(delta("a")) + b"0\r\n\r\n")

    async def main():
        made = {"id": "resp_1", "model": "m", "status": "completed", "output": [], "error": None}
        async with Upstream(whole(made)) as engine, Gateway() as gateway:
            gateway.add_route("m", engine.url)
            assert (await gateway.chat(path="/v1/responses", model="m")).status == 200
            asked = request("HEAD", "/v1/responses/resp_1", b"", f"authorization: Bearer {gateway.secret}")
            for answer, length in ((whole(made), None), (large, "600000"), (events, None)):
                engine.answer = answer
                async with gateway.client() as client:
                    client.write(asked)
                    reply = await client.reply("HEAD")
                    assert reply.status == 200
                    assert length in {None, reply.headers.get("content-length")}
                    client.write(request("GET", "/healthz"))
                    assert (await client.reply()).json == {"status": "ok"}

    run(main())


@pytest.mark.parametrize("status", [0, 99, 600, 999])
def test_a_status_that_is_none_is_no_answer(status):
    async def main():
        async with Upstream(whole({}, status)) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.chat()
            assert (reply.status, reply.error["code"]) == (502, "upstream_cut")
            assert "not HTTP" in reply.error["message"]

    run(main())


def test_garbage_from_an_engine_is_an_error_of_its_layer():
    async def garbage(call):
        call.writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    async def endless(call):
        call.writer.write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(400):
            call.writer.write(b"x: " + b"y" * 1000 + b"\r\n")
        await call.gone.wait()

    async def main():
        async with Upstream(garbage) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            assert (await gateway.chat()).error["code"] == "upstream_cut"
            engine.answer = endless
            reply = await gateway.chat()
            assert reply.status == 502
            assert "too large" in reply.error["message"]

    run(main())
