"""A stream of events on its way: the same however its bytes arrive."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routes.gateway.counts import Counts, counts_in, counts_of
from routes.gateway.faults import engine_error
from routes.gateway.sse import Stream
from tests.support.gateway import Gateway, run
from tests.support.upstream import DONE, Upstream, chunk, compact, delta, head, usage_event

TEXTS = ["", "你好", "🙂🙂", "a\u2028b\u0085c", '"model":"the/target"', "data: [DONE]\n\n", "\\", "é" * 50]
EVENTS = [delta(text, "the/target") for text in TEXTS]
WHOLE = b"".join(EVENTS) + usage_event("the/target") + DONE
EXPECTED = b"".join(delta(text, "qwen3-8b") for text in TEXTS) + DONE


def passed(
    *pieces: bytes, kind: str = "chat", model: str = "qwen3-8b", **options: bool
) -> tuple[bytes, Stream]:
    stream = Stream(kind, model, **{"drop_usage": True, **options})
    out = b"".join(stream.feed(piece) for piece in pieces)
    return out + stream.finish(), stream


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    return [data[start:end] for start, end in pairwise([0, *sorted(cuts), len(data)])]


def check(out: bytes, stream: Stream) -> None:
    assert out == EXPECTED
    assert stream.counts == Counts(7, 0, 3)
    assert stream.final
    assert stream.ended
    assert stream.completion_events == len(TEXTS)


def test_every_split_into_two():
    for cut in range(len(WHOLE)):
        check(*passed(WHOLE[:cut], WHOLE[cut:]))


def test_byte_by_byte():
    check(*passed(*(bytes([byte]) for byte in WHOLE)))


@given(st.lists(st.integers(0, len(WHOLE)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_split(cuts):
    check(*passed(*split(WHOLE, cuts)))


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20))
@settings(max_examples=100, deadline=None)
def test_any_split_with_other_ends_of_lines(cuts):
    data = WHOLE.replace(b"\n\n", b"\r\n\r\n")
    out, stream = passed(*split(data, [min(cut, len(data)) for cut in cuts]))
    assert out == EXPECTED.replace(b"\n\n", b"\r\n\r\n")
    assert stream.counts == Counts(7, 0, 3)


def test_whole_events_only_are_passed_on():
    stream = Stream("chat", "qwen3-8b")
    for byte in EVENTS[1]:
        out = stream.feed(bytes([byte]))
        assert out in {b"", EVENTS[1].replace(b"the/target", b"qwen3-8b")}
    assert out


def test_a_megabyte_in_one_line_passes_in_linear_time():
    event = delta("x" * (1 << 20), "the/target")
    out, stream = passed(*(event[at : at + 16] for at in range(0, len(event), 16)))
    assert out == event.replace(b"the/target", b"qwen3-8b")
    assert stream.completion_events == 1


def test_an_event_without_an_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr("routes.gateway.sse.MAX_EVENT", 1000)
    stream = Stream("chat", "qwen3-8b")
    out = b"".join(stream.feed(b"x" * 100) for _ in range(100))
    assert len(out) > 8000
    assert len(stream.tail) <= 1100


def test_the_count_in_every_event_is_taken_out_or_left():
    events = [
        delta(text, usage={"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count})
        for count, text in enumerate("abc")
    ]
    out, stream = passed(*events, drop_continuous=True)
    assert out == b"".join(delta(text) for text in "abc")
    assert (stream.counts, stream.final) == (Counts(7, 0, 2), False)
    out, stream = passed(*events, drop_usage=False)
    assert out == b"".join(events)


def test_a_null_usage_that_came_with_our_wish_goes_too():
    out, _ = passed(delta("a", usage=None), usage_event(), DONE)
    assert out == delta("a") + DONE
    spaced = b'data: {"usage": null, "choices": [{"delta": {}}], "x": {"usage": 1}}\n\n'
    out, _ = passed(spaced)
    assert json.loads(out[6:]) == {"choices": [{"delta": {}}], "x": {"usage": 1}}


@pytest.mark.parametrize("spaced", [False, True])
def test_the_name_is_corrected_however_it_is_written(spaced):
    value = {"id": "1", "model": '/srv/模型/a"b', "choices": [{"delta": {"content": "x"}}]}
    event = b"data: " + (json.dumps(value).encode() if spaced else compact(value)) + b"\n\n"
    out, _ = passed(event, event, model="qwen3-8b")
    for part in out.split(b"\n\n")[:2]:
        assert json.loads(part[6:]) == {**value, "model": "qwen3-8b"}


def test_a_stream_of_messages_is_counted_and_ends():
    def event(name: str, **fields) -> bytes:
        return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()

    message = {"id": "m", "model": "the/target", "usage": {"input_tokens": 3, "output_tokens": 0}}
    message["usage"]["cache_read_input_tokens"] = 16
    events = [
        event("message_start", message=message),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hi"}),
        event("message_delta", delta={}, usage={"output_tokens": 5}),
        event("message_stop"),
    ]
    out, stream = passed(*events, kind="messages")
    assert b"the/target" not in out
    assert stream.counts == Counts(19, 16, 5)
    assert stream.ended
    assert stream.final
    assert not passed(*events[:2], kind="messages")[1].final


def test_a_stream_of_a_response_is_counted_and_ends():
    def event(name: str, **fields) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), compact({"type": name, **fields}))

    made = {"id": "resp_1", "model": "the/target", "error": None, "usage": None}
    usage = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2}
    usage["total_tokens"] = 11
    out, stream = passed(
        event("response.created", response=made),
        event("response.output_text.delta", delta="hi"),
        event("response.completed", response={**made, "usage": usage}),
        kind="responses",
    )
    assert b"the/target" not in out
    assert (stream.counts, stream.response_id) == (Counts(9, 4, 2), "resp_1")
    assert stream.ended
    assert stream.final
    assert stream.error is None
    _, stream = passed(
        event("response.failed", response={**made, "error": {"message": "boom", "code": "server_error"}}),
        kind="responses",
    )
    assert stream.error.message == "boom"


@pytest.mark.parametrize(
    "value",
    [
        {"error": {"message": "m", "type": "t", "param": None, "code": 400}},
        {"object": "error", "message": "m", "type": "t", "param": None, "code": 400},
        {"error": "m"},
        {"detail": "m"},
        {"type": "error", "error": {"type": "t", "message": "m"}},
    ],
)
def test_every_shape_of_an_error_is_read(value):
    assert engine_error(value).message == "m"


@pytest.mark.parametrize("value", [{}, [], None, {"choices": []}, {"error": None}, {"id": "x", "error": {}}])
def test_what_is_no_error_is_none_or_empty(value):
    found = engine_error(value)
    assert found is None or found.message == "null"


def test_usage_is_found_at_the_end_of_a_large_answer():
    value = {
        "data": [{"embedding": [0.5] * 3000, "text": '"usage":{"prompt_tokens":99}'}],
        "usage": {"prompt_tokens": 12, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 8}},
        "more": {"a": "}"},
    }
    for body in (json.dumps(value).encode(), compact(value), json.dumps(value, indent=2).encode()):
        assert counts_in(body) == Counts(12, 8, 0)
        assert counts_in(body[-300:] if b'"usage"' in body[-300:] else body) == Counts(12, 8, 0)
    assert counts_in(b"x" * 20000) is None
    assert counts_in(b'{"usage"' + b" " * 20000) is None


@pytest.mark.parametrize("usage", [None, 5, {}, {"prompt_tokens": -1}, {"prompt_tokens": "7"}, {"other": 1}])
def test_a_count_that_is_none_is_not_believed(usage):
    assert counts_of(usage) in (None, Counts())


@pytest.mark.parametrize("usage", [{"prompt_tokens": 0, "completion_tokens": 3}, {"prompt_tokens": 1 << 80}])
def test_no_count_is_ever_less_than_nothing(usage):
    assert counts_of({"completion_tokens": 3, **usage}) == Counts(0, 0, 3)


def test_one_byte_per_chunk_arrives_whole():
    async def drips(call):
        call.writer.write(head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n")
        for byte in WHOLE:
            call.writer.write(chunk(bytes([byte])))
        call.writer.write(b"0\r\n\r\n")

    async def main():
        async with Upstream(drips) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", {"base_url": engine.url, "model": "the/target"})
            reply = await gateway.chat(stream=True)
            assert reply.body == EXPECTED
            assert gateway.rows[0].completion_tokens == 3

    run(main())


def test_a_megabyte_event_goes_through_the_gateway():
    async def main():
        text = "好" * (1 << 19)

        async def big(call):
            call.writer.write(head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n")
            call.writer.write(chunk(delta(text)) + chunk(DONE) + b"0\r\n\r\n")

        async with Upstream(big) as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            assert (await gateway.chat(stream=True)).text == text

    run(main())
