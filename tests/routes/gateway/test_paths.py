"""Every path of the table, in the shapes its callers speak."""

from __future__ import annotations

import json

import pytest

from routes.gateway.paths import EXACT, TABLE, find_path, serves
from tests.support.gateway import Gateway, request, run
from tests.support.upstream import Upstream, compact, whole

FORWARDED = [path for path in TABLE if path.kind not in {"models", "audio"}]


@pytest.mark.parametrize("path", FORWARDED, ids=lambda path: path.name)
def test_a_path_arrives_at_the_engines(path):
    async def main():
        answer = whole({"model": "the/target", "usage": {"prompt_tokens": 5}})
        async with Upstream(answer) as engine, Gateway() as gateway:
            gateway.add_route("m", {"base_url": engine.url, "model": "the/target"})
            reply = await gateway.chat(path=f"/v1/{path.name}", model="m")
            assert reply.status == 200
            call = engine.calls[0]
            assert call.line == f"POST {path.engine} HTTP/1.1"
            assert call.json["model"] == "the/target"
            (row,) = gateway.rows
            assert row.path == path.name
            assert (row.prompt_tokens, row.tokens_source) == ((5, "engine") if path.counted else (0, ""))

    run(main())


def test_the_second_version_of_rerank_is_the_first():
    assert find_path(b"/v2/rerank").path is find_path(b"/v1/rerank").path


def test_a_base_url_may_have_a_path_of_its_own():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("m", f"{engine.url}/openai")
            assert (await gateway.chat(model="m")).status == 200
            assert engine.calls[0].path == "/openai/v1/chat/completions"

    run(main())


def test_versions_decide_who_is_asked():
    messages, responses = EXACT[b"/v1/messages"], EXACT[b"/v1/responses"]
    assert serves(messages, "0.11.1")
    assert serves(messages, "0.25.1+cpu")
    assert serves(messages, "")
    assert serves(messages, "unknown")
    assert not serves(messages, "0.11.0")
    assert not serves(responses, "0.9.2.post1")

    async def main():
        async with Upstream() as old, Upstream() as new, Gateway() as gateway:
            gateway.add_route(
                "m",
                {"base_url": old.url, "vllm_version": "0.9.1"},
                {"base_url": new.url, "vllm_version": "0.25.1"},
            )
            for _ in range(4):
                assert (await gateway.chat(path="/v1/messages", model="m")).status == 200
            assert (len(old.calls), len(new.calls)) == (0, 4)

    run(main())


def test_the_models_of_a_key_are_listed():
    async def main():
        async with Gateway() as gateway:
            target = {"base_url": "http://a", "max_model_len": 32768}
            gateway.add_route("b-model", target, aliases=("b-alias",), created_at=1_700_000_000)
            gateway.add_route("a-model", {**target, "max_model_len": None}, description="Small one")
            gateway.add_route("off", target, enabled=False)
            reply = await gateway.get("/v1/models")
            assert [item["id"] for item in reply.json["data"]] == ["a-model", "b-model"]
            assert [item["max_model_len"] for item in reply.json["data"]] == [None, 32768]
            # what an operator has set counts where it is less, or where no engine says
            gateway.add_route("c", target, {**target, "max_model_len": 8192}, context_length=16384)
            gateway.add_route("d", target, context_length=65536)
            gateway.add_route("e", {**target, "max_model_len": None}, context_length=4096)
            for name, length in (("c", 16384), ("d", 32768), ("e", 4096)):
                reply = await gateway.get(f"/v1/models/{name}")
                assert reply.json["max_model_len"] == length
                assert (await gateway.get(f"/v1/models/{name}", "anthropic-version: 1")).json[
                    "max_input_tokens"
                ] == length
                del gateway.snapshot.routes[name]
            reply = await gateway.get("/v1/models")
            assert reply.json["data"][1]["object"] == "model"
            reply = await gateway.get("/v1/models/b-alias")
            assert (reply.json["id"], reply.json["root"]) == ("b-alias", "b-model")
            reply = await gateway.get("/v1/models", "anthropic-version: 2023-06-01")
            assert reply.json["data"][0] == {
                "type": "model",
                "id": "a-model",
                "display_name": "Small one",
                "created_at": "1970-01-01T00:00:00Z",
                "max_input_tokens": None,
            }
            assert (reply.json["first_id"], reply.json["last_id"]) == ("a-model", "b-model")
            gateway.secret = gateway.add_key(models=frozenset({"b-model"}))
            assert [item["id"] for item in (await gateway.get("/models")).json["data"]] == ["b-model"]
            assert (await gateway.get("/v1/models/a-model")).status == 403
            assert (await gateway.get("/v1/models/org%2Fname")).status == 404
            assert all(row.path.startswith("models") for row in gateway.rows)

    run(main())


def test_anthropics_callers_get_errors_in_their_shape():
    async def main():
        shape = {"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}}
        async with Upstream(whole(shape, 400)) as engine, Gateway() as gateway:
            gateway.add_route("m", engine.url)
            reply = await gateway.chat(
                "anthropic-version: 2023-06-01", "anthropic-beta: x", path="/v1/messages", model="m"
            )
            assert reply.status == 400
            assert reply.json["type"] == "error"
            assert reply.error["type"] == "invalid_request_error"
            assert reply.error["message"] == "too long"
            assert reply.json["request_id"] == reply.headers["x-request-id"] == reply.headers["request-id"]
            headers = engine.calls[0].headers
            assert (headers["anthropic-version"], headers["anthropic-beta"]) == ("2023-06-01", "x")
            for key, model, status, kind in (
                ("wrong", "m", 401, "authentication_error"),
                (None, "other", 404, "not_found_error"),
            ):
                body = compact({"model": model, "max_tokens": 5, "messages": []})
                reply = await gateway.send(gateway.head_of("/v1/messages", body, key=key))
                assert (reply.status, reply.json["type"], reply.error["type"]) == (status, "error", kind)

    run(main())


def test_a_response_is_asked_for_where_it_was_made():
    async def main():
        made = {"id": "resp_1", "model": "m", "status": "completed", "output": [], "error": None}
        answer = whole(made)
        async with Upstream(answer) as one, Upstream(answer) as other, Gateway() as gateway:
            gateway.add_route("m", one.url, other.url)
            assert (await gateway.chat(path="/v1/responses", model="m")).status == 200
            maker, idle = (one, other) if one.calls else (other, one)
            for _ in range(3):
                reply = await gateway.get("/v1/responses/resp_1")
                assert reply.json["id"] == "resp_1"
            assert maker.calls[-1].line == "GET /v1/responses/resp_1 HTTP/1.1"
            reply = await gateway.send(gateway.head_of("/v1/responses/resp_1/cancel", b""))
            assert reply.status == 200
            for _ in range(3):
                await gateway.chat(path="/v1/responses", model="m", previous_response_id="resp_1")
            assert not idle.calls
            reply = await gateway.get("/v1/responses/resp_2")
            assert (reply.status, reply.error["code"]) == (404, "response_not_found")
            # nor another key's that may not call the model
            first, gateway.secret = gateway.secret, gateway.add_key(models=frozenset({"other"}))
            reply = await gateway.get("/v1/responses/resp_1")
            assert (reply.status, reply.error["code"]) == (403, "model_not_allowed")
            gateway.secret = first
            # what one business made is not another's to read
            gateway.secret = gateway.add_key(business_id=2)
            assert (await gateway.get("/v1/responses/resp_1")).status == 404
            before = len(maker.calls) + len(idle.calls)
            reply = await gateway.chat(path="/v1/responses", model="m", previous_response_id="resp_1")
            assert (reply.status, reply.error["code"]) == (404, "response_not_found")
            assert reply.error["param"] == "previous_response_id"
            assert len(maker.calls) + len(idle.calls) == before

    run(main())


def test_an_audio_form_goes_by_its_model():
    async def main():
        audio = b"RIFF\x00\x01\r\n--other\r\n\xff"
        body = (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
            b"Content-Type: audio/wav\r\n\r\n" + audio + b"\r\n"
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--b--\r\n'
        )
        kind = "content-type: multipart/form-data; boundary=b"
        answer = whole({"text": "hello", "usage": {"type": "duration", "seconds": 3}})
        async with Upstream(answer) as engine, Gateway() as gateway:
            gateway.add_route("whisper", {"base_url": engine.url, "model": "openai/whisper-large"})
            reply = await gateway.send(gateway.head_of("/v1/audio/transcriptions", body, kind))
            assert reply.json["text"] == "hello"
            call = engine.calls[0]
            assert call.body == body.replace(b"\r\nwhisper\r\n", b"\r\nopenai/whisper-large\r\n")
            assert call.headers["content-type"] == "multipart/form-data; boundary=b"
            reply = await gateway.send(
                gateway.head_of("/v1/audio/transcriptions", body.replace(b'"model"', b'"modle"'), kind)
            )
            assert (reply.status, reply.error["code"]) == (400, "model_missing")
            reply = await gateway.send(gateway.head_of("/v1/audio/transcriptions", b'{"model":"whisper"}'))
            assert (reply.status, reply.error["code"]) == (400, "form_expected")

    run(main())


def test_max_tokens_is_refused_or_lowered_as_the_route_says():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            target = {"base_url": engine.url, "max_model_len": 4096}
            gateway.add_route("strict", target, max_tokens=100)
            gateway.add_route("soft", target, max_tokens=100, max_tokens_rule="clamp")
            reply = await gateway.chat(model="strict", max_completion_tokens=101)
            assert (reply.status, reply.error["code"]) == (400, "max_tokens_too_large")
            assert reply.error["param"] == "max_completion_tokens"
            assert (await gateway.chat(model="strict", max_tokens=100)).status == 200
            assert (await gateway.chat(model="soft", max_tokens=5000)).status == 200
            assert engine.calls[-1].json["max_tokens"] == 100
            # a refusal of this kind takes nothing of a limit
            assert len(gateway.limits.grants) == 2

    run(main())


def test_figures_are_for_private_networks():
    async def main():
        from ipaddress import ip_network

        async with Gateway(proxies=(ip_network("127.0.0.0/8"),)) as gateway:
            assert (await gateway.get("/metrics")).status == 200
            assert (await gateway.get("/metrics", "x-forwarded-for: 10.1.1.1")).status == 200
            reply = await gateway.get("/metrics", "x-forwarded-for: 8.8.8.8")
            assert (reply.status, reply.error["code"]) == (403, "address_not_allowed")

    run(main())


def test_whatever_callers_send_beside_passes():
    async def main():
        value = {
            "model": "m",
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA="}}],
                }
            ],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"model": "x"}}}],
            "logprobs": True,
            "n": 3,
            "chat_template_kwargs": {"enable_thinking": False},
        }
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("m", {"base_url": engine.url, "model": "t"})
            reply = await gateway.send(gateway.head_of("/v1/chat/completions", json.dumps(value).encode()))
            assert reply.status == 200
            assert engine.calls[0].json == {**value, "model": "t"}

    run(main())


def test_a_request_that_names_another_host_is_no_open_proxy():
    async def main():
        async with Gateway() as gateway:
            raw = request("GET", "http://elsewhere.example/", b"", f"authorization: Bearer {gateway.secret}")
            assert (await gateway.send(raw)).status == 404
            raw = request("GET", "ftp://elsewhere.example/v1/models", b"")
            assert (await gateway.send(raw)).status in {400, 404}

    run(main())
