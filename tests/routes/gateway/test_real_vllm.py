"""The gateway before a real vLLM (CPU build): the official SDKs, counts, and requests whose caller goes."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from kvadmin.env import BASE_DIR
from routes.gateway.sharedresponses import SharedResponses
from tests.support import real_vllm
from tests.support.gateway import Gateway, run, until
from tests.support.real_engine import KEY, MAX_MODEL_LEN, running
from tests.support.upstream import compact

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]


def add_route(gateway: Gateway, url: str, **fields) -> None:
    target = {"base_url": url, "api_key": KEY, "model": "second", "vllm_version": real_vllm.VERSION}
    gateway.add_route("qwen3-8b", {**target, "max_model_len": MAX_MODEL_LEN}, **fields)


def test_the_official_sdks_are_served_as_by_their_makers(real_engine):
    async def main():
        async with Gateway() as gateway:
            add_route(gateway, real_engine)
            script = await asyncio.create_subprocess_exec(
                str(real_vllm.executable().parent / "python"),
                str(BASE_DIR / "tests/support/sdk_calls.py"),
                f"http://127.0.0.1:{gateway.port}",
                gateway.secret,
                "qwen3-8b",
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await script.communicate()
            return json.loads(output), list(gateway.rows)

    found, rows = run(main(), 600)
    assert found["chat"] == {"model": "qwen3-8b", "tokens": [found["chat"]["tokens"][0], 8], "id": True}
    assert found["stream"] == {"models": ["qwen3-8b"], "usage": [], "finish": "length"}
    assert found["stream_usage"] == 16
    assert found["completions"] == 5
    assert found["responses"]["model"] == "qwen3-8b"
    assert found["responses_stream"] == ["response.created", "response.completed", "qwen3-8b"]
    assert found["models"] == [["qwen3-8b", 2048]]
    assert found["model"] == "qwen3-8b"
    assert found["errors"] == {
        "embeddings": ["NotFoundError", "path_not_served", True],
        "too_long": ["BadRequestError", "context_length_exceeded", True],
        "no_model": ["NotFoundError", "model_not_found", True],
        "bad_value": ["BadRequestError", "invalid_request", True],
        "bad_key": ["AuthenticationError", "invalid_api_key", True],
    }
    assert found["messages"] == {"model": "qwen3-8b", "tokens": 8}
    assert found["messages_stream"] == {"model": "qwen3-8b", "tokens": 8}
    assert found["count_tokens"]
    assert found["claude_models"] == ["qwen3-8b"]
    assert found["claude_errors"]["no_model"][::2] == ["NotFoundError", True]
    assert found["claude_errors"]["bad_key"][::2] == ["AuthenticationError", True]
    counted = [row for row in rows if row.status == 200 and row.tokens_source]
    assert len(counted) == 9
    assert {row.tokens_source for row in counted} == {"engine"}
    assert all(row.prompt_tokens and row.completion_tokens for row in counted)


def test_a_response_is_found_and_gone_on_from_through_another_worker(real_engine):
    async def main():
        shared = [SharedResponses(os.environ["VALKEY_URL"]) for _n in range(2)]
        tasks = [asyncio.create_task(one.run()) for one in shared]
        one, other = (Gateway(responses=responses) for responses in shared)
        async with one, other:
            add_route(one, real_engine)
            add_route(other, real_engine)
            await until(lambda: all(each.shared and each._settled for each in shared))
            value = {"model": "qwen3-8b", "max_output_tokens": 4, "store": True}
            made = (await one.chat(path="/v1/responses", input="hi", **value)).json
            again = await other.get(f"/v1/responses/{made['id']}")
            assert again.json == made
            goes_on = {**value, "input": "and?", "previous_response_id": made["id"]}
            assert (await other.chat(path="/v1/responses", **goes_on)).status == 200
            # vLLM lets a caller choose the id: the gateway keeps it from being another's
            other.secret = other.add_key(business_id=2)
            theirs = await other.chat(path="/v1/responses", input="hi", **value, request_id=made["id"])
            assert (theirs.status, theirs.error["code"]) == (400, "response_id_taken")
            assert (await other.chat(path="/v1/responses", **goes_on)).status == 404
            assert (await other.get(f"/v1/responses/{made['id']}")).status == 404
            own = await other.chat(path="/v1/responses", input="hi", **value, request_id="resp_chosen")
            assert own.json["id"] == "resp_chosen"
        for task in tasks:
            task.cancel()

    run(main(), 300)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_engine_stops_when_the_caller_goes(real_engine, streamed):
    async def main():
        async with Gateway() as gateway:
            add_route(gateway, real_engine, continuous_usage=True)
            value = {"model": "qwen3-8b", "messages": [{"role": "user", "content": "hi"}], "stream": streamed}
            body = compact({**value, "max_tokens": 1900, "ignore_eos": True})
            async with gateway.client() as client:
                client.write(gateway.head_of("/v1/chat/completions", body))
                if streamed:
                    for _ in range(5):
                        await client.reader.readuntil(b"\n\n")
                else:
                    await until(lambda: running(real_engine) == 1)
                client.abort()
            await until(lambda: gateway.rows)
            await until(lambda: running(real_engine) == 0)
            (row,) = gateway.rows
            assert row.error_code == "caller_gone"
            if streamed:
                assert row.tokens_source == "partial"
                assert 1 <= row.completion_tokens < 1900
            else:
                assert row.tokens_source == "estimated"

    run(main(), 300)
