"""The official Anthropic SDK, with nothing changed but its base URL and its key."""

from __future__ import annotations

import anthropic
import pytest

from tests.support.gateway_process import wait_for
from tests.support.upstream import Call, compact, cut, head, silent, whole

MESSAGE = {
    "id": "msg-1",
    "type": "message",
    "role": "assistant",
    "model": "Qwen/Qwen3-8B",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 7, "output_tokens": 3},
}
TOOL = {
    "name": "parcel",
    "description": "Where a parcel is.",
    "input_schema": {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]},
}


@pytest.fixture
def client(shop):
    shop.engine.answer = whole(MESSAGE)
    with anthropic.Anthropic(base_url=shop.gateway.url, api_key=shop.key, max_retries=0) as made:
        yield made


def ask(client: anthropic.Anthropic, **fields):
    given = {"model": "qwen3-8b", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
    return client.messages.create(**{**given, **fields})


def events(*given: dict, then: str = "end"):
    """A stream in Anthropic's words."""

    async def answer(call: Call) -> None:
        call.writer.write(head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n")
        for event in given:
            data = b"event: %b\ndata: %b\n\n" % (event["type"].encode(), compact(event))
            call.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await call.writer.drain()
        if then == "cut":
            call.writer.transport.abort()
        else:
            call.writer.write(b"0\r\n\r\n")

    return answer


BEGIN = {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}}
OPEN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
WORDS = [
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    for text in ("hal", "lo 📦")
]
CLOSE = {"type": "content_block_stop", "index": 0}
LAST = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn", "stop_sequence": None},
    "usage": {"input_tokens": 7, "output_tokens": 3},
}
STOP = {"type": "message_stop"}


def test_a_message(client, shop):
    answer = ask(client)
    assert answer.content[0].text == "hello"
    assert answer.model == "qwen3-8b"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 3)
    sent = shop.engine.calls[0]
    assert sent.path == "/v1/messages"
    assert sent.json["model"] == "Qwen/Qwen3-8B"
    assert sent.headers["anthropic-version"]
    assert shop.key not in str(sent.headers)


def test_a_stream(client, shop):
    shop.engine.answer = events(BEGIN, OPEN, *WORDS, CLOSE, LAST, STOP)
    with client.messages.stream(
        model="qwen3-8b", max_tokens=50, messages=[{"role": "user", "content": "hi"}]
    ) as stream:
        assert "".join(stream.text_stream) == "hallo 📦"
        final = stream.get_final_message()
    assert final.model == "qwen3-8b"
    assert final.usage.output_tokens == 3


def test_tools(client, shop):
    use = {"type": "tool_use", "id": "toolu-1", "name": "parcel", "input": {"number": "7"}}
    shop.engine.answer = whole({**MESSAGE, "content": [use], "stop_reason": "tool_use"})
    answer = ask(client, tools=[TOOL])
    assert (answer.content[0].name, answer.content[0].input) == ("parcel", {"number": "7"})
    assert shop.engine.calls[0].json["tools"] == [TOOL]


def test_counting_tokens(client, shop):
    shop.engine.answer = whole({"input_tokens": 9})
    counted = client.messages.count_tokens(model="qwen3-8b", messages=[{"role": "user", "content": "hi"}])
    assert counted.input_tokens == 9
    assert shop.engine.calls[0].path == "/v1/messages/count_tokens"


def test_models(client):
    assert [one.id for one in client.models.list()] == ["qwen3-8b"]
    assert client.models.retrieve("qwen3-8b").id == "qwen3-8b"


def test_a_wrong_key(client):
    with pytest.raises(anthropic.AuthenticationError) as caught:
        ask(client.with_options(api_key="sk-kv-wrong"))
    assert caught.value.body["error"]["type"] == "authentication_error"
    assert caught.value.request_id


def test_a_model_that_the_key_may_not_call(client, shop):
    with pytest.raises(anthropic.PermissionDeniedError):
        ask(client.with_options(api_key=shop.issue(models=["other"])))


def test_a_model_that_is_not_there(client):
    with pytest.raises(anthropic.NotFoundError) as caught:
        ask(client, model="claude-9")
    assert caught.value.body["error"]["type"] == "not_found_error"
    assert "qwen3-8b" in caught.value.body["error"]["message"]


def test_a_limit(client, shop):
    limited = client.with_options(api_key=shop.issue(requests_per_minute=1))
    ask(limited)
    with pytest.raises(anthropic.RateLimitError) as caught:
        ask(limited)
    assert caught.value.body["error"]["type"] == "rate_limit_error"
    assert int(caught.value.response.headers["retry-after"]) >= 1


def test_the_engines_refusal(client, shop):
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "too long for me"}}
    shop.engine.answer = whole(error, status=400)
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(client)
    assert "too long for me" in caught.value.body["error"]["message"]


def test_the_callers_patience(client, shop):
    shop.engine.answer = silent
    with pytest.raises(anthropic.APITimeoutError):
        ask(client.with_options(timeout=0.4))
    assert wait_for(lambda: shop.engine.calls[0].gone.is_set())


def test_the_routes_patience(client, shop):
    shop.engine.answer = silent
    with pytest.raises(anthropic.InternalServerError) as caught:
        ask(client)
    assert caught.value.status_code == 504


def test_a_stream_that_breaks_is_an_error_and_not_an_end(client, shop):
    shop.engine.answer = events(BEGIN, OPEN, *WORDS, then="cut")
    with pytest.raises(anthropic.APIStatusError) as caught:
        for _event in ask(client, stream=True):
            pass
    assert caught.value.body["error"]["type"] == "api_error"


def test_the_sdk_tries_again(client, shop):
    failed = []

    async def once(call: Call) -> None:
        if not failed:
            failed.append(call)
            await cut(call)
        else:
            await whole(MESSAGE)(call)

    shop.engine.answer = once
    assert ask(client.with_options(max_retries=2)).content[0].text == "hello"
    assert failed
