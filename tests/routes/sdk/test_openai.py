"""The official OpenAI SDK, with nothing changed but its base URL and its key."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest

from routes.models import Target
from tests.support.gateway_process import wait_for
from tests.support.upstream import Call, compact, cut, head, silent, stream, usage_event, whole

MESSAGES = [{"role": "user", "content": "Wann kommt mein Paket? 包裹 📦"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "parcel",
        "description": "Where a parcel is.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "string"}},
            "required": ["number"],
        },
    },
}


@pytest.fixture
def client(shop):
    with openai.OpenAI(base_url=f"{shop.gateway.url}/v1", api_key=shop.key, max_retries=0) as made:
        yield made


def chat(client: openai.OpenAI, **fields):
    return client.chat.completions.create(**{"model": "qwen3-8b", "messages": MESSAGES, **fields})


def test_a_chat(client, shop):
    answer = chat(client, max_tokens=20)
    assert answer.choices[0].message.content == "hello"
    assert answer.model == "qwen3-8b"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 3)
    assert answer._request_id
    sent = shop.engine.calls[0]
    assert sent.json["messages"] == MESSAGES
    assert sent.json["model"] == "Qwen/Qwen3-8B"
    assert sent.headers["authorization"] == "Bearer sk-engine"


def test_a_stream(client, shop):
    shop.engine.answer = stream("Es ", "kommt ", "heute 📦")
    chunks = list(chat(client, stream=True))
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == "Es kommt heute 📦"
    assert {one.model for one in chunks} == {"qwen3-8b"}
    assert all(one.usage is None for one in chunks)


def test_a_stream_with_its_usage(client, shop):
    shop.engine.answer = stream("a", "b")
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 10


def test_a_stream_that_is_left_is_ended_at_the_engine(client, shop):
    shop.engine.answer = stream(*["word "] * 500, pause_s=0.02)
    with chat(client, stream=True) as answer:
        next(iter(answer))
    assert wait_for(lambda: shop.engine.calls[0].gone.is_set())


def test_tools(client, shop):
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call-1",
                "type": "function",
                "function": {"name": "parcel", "arguments": '{"number": "7"}'},
            }
        ],
    }
    shop.engine.answer = whole(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "Qwen/Qwen3-8B",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
    )
    answer = chat(client, tools=[TOOL], tool_choice="auto")
    call = answer.choices[0].message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("parcel", {"number": "7"})
    assert shop.engine.calls[0].json["tools"] == [TOOL]


def test_embeddings(client, shop):
    shop.engine.answer = whole(
        {
            "object": "list",
            "model": "Qwen/Qwen3-8B",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
            "usage": {"prompt_tokens": 2, "total_tokens": 2},
        }
    )
    answer = client.embeddings.create(model="qwen3-8b", input="parcel", encoding_format="float")
    assert answer.data[0].embedding == [0.5, -0.25]


def test_models(client):
    assert [one.id for one in client.models.list()] == ["qwen3-8b"]
    assert client.models.retrieve("qwen3-8b").id == "qwen3-8b"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_the_async_client(shop):
    shop.engine.answer = stream("a", "b")

    async def work() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{shop.gateway.url}/v1", api_key=shop.key) as client:

            async def one() -> str:
                made = await client.chat.completions.create(model="qwen3-8b", messages=MESSAGES, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in made])

            return await asyncio.gather(*(one() for _n in range(20)))

    assert asyncio.run(work()) == ["ab"] * 20


def test_a_wrong_key(client):
    with pytest.raises(openai.AuthenticationError) as caught:
        chat(client.with_options(api_key="sk-kv-wrong"))
    assert (caught.value.status_code, caught.value.code) == (401, "invalid_api_key")
    assert caught.value.request_id


def test_a_model_that_the_key_may_not_call(client, shop):
    with pytest.raises(openai.PermissionDeniedError) as caught:
        chat(client.with_options(api_key=shop.issue(models=["other"])))
    assert caught.value.code == "model_not_allowed"


def test_a_model_that_is_not_there(client):
    with pytest.raises(openai.NotFoundError) as caught:
        chat(client, model="gpt-9")
    assert caught.value.code == "model_not_found"
    assert "qwen3-8b" in caught.value.message


def test_a_limit(client, shop):
    limited = client.with_options(api_key=shop.issue(requests_per_minute=1))
    chat(limited)
    with pytest.raises(openai.RateLimitError) as caught:
        chat(limited)
    assert caught.value.code == "rate_limit_exceeded"
    assert int(caught.value.response.headers["retry-after"]) >= 1


def test_too_many_tokens_by_the_routes_rule(client):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, max_tokens=5000)
    assert (caught.value.code, caught.value.param) == ("max_tokens_too_large", "max_tokens")


def test_the_engines_refusal(client, shop):
    said = "This model's maximum context length is 2048 tokens."
    error = {"message": said, "type": "BadRequestError", "param": None, "code": 400}
    shop.engine.answer = whole({"error": error}, status=400)
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client)
    assert said in caught.value.message
    assert len(shop.engine.calls) == 1


def test_an_engine_without_embeddings(client, shop):
    shop.engine.answer = whole({"detail": "Not Found"}, status=404)
    with pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model="qwen3-8b", input="parcel")
    assert caught.value.code == "path_not_served"


def test_the_callers_patience(client, shop):
    shop.engine.answer = silent
    with pytest.raises(openai.APITimeoutError):
        chat(client.with_options(timeout=0.4))
    assert wait_for(lambda: shop.engine.calls[0].gone.is_set())


def test_the_routes_patience(client, shop):
    shop.engine.answer = silent
    with pytest.raises(openai.InternalServerError) as caught:
        chat(client)
    assert (caught.value.status_code, caught.value.code) == (504, "upstream_first_byte_timeout")


def test_no_engine_takes_connections(client, shop):
    Target.objects.filter(route=shop.route).update(base_url="http://127.0.0.1:1")

    def code() -> str:
        try:
            chat(client)
        except openai.InternalServerError as error:
            assert error.status_code == 503
            return error.code
        return ""

    assert wait_for(code) == "no_target_available"


def test_a_stream_that_breaks_is_an_error_and_not_an_end(client, shop):
    shop.engine.answer = stream("a", "b", pause_s=0.02, then="cut")
    said = []
    with pytest.raises(openai.APIError) as caught:
        for chunk in chat(client, stream=True):
            said.append(chunk.choices[0].delta.content)
    assert "".join(part or "" for part in said) == "ab"
    assert caught.value.code == "upstream_cut"


def test_the_sdk_tries_again(client, shop):
    failed = []

    async def once(call: Call) -> None:
        if not failed:
            failed.append(call)
            await cut(call)
        else:
            await whole()(call)

    shop.engine.answer = once
    answer = chat(client.with_options(max_retries=2))
    assert answer.choices[0].message.content == "hello"
    assert failed


def test_an_error_within_a_stream(client, shop):
    error = {"error": {"message": "out of pages", "type": "InternalServerError", "code": 500}}

    async def answer(call: Call) -> None:
        body = usage_event().replace(b'"choices":[]', b'"choices":[{"index":0,"delta":{"content":"a"}}]')
        body += b"data: " + compact(error) + b"\n\n"
        call.writer.write(head(kind="text/event-stream", content_length=str(len(body))) + b"\r\n" + body)

    shop.engine.answer = answer
    with pytest.raises(openai.APIError, match="out of pages"):
        list(chat(client, stream=True))
