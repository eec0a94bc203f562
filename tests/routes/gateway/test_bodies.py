"""What is read of a request's body and what is changed in it: single values, and no other byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routes.gateway.asked import edited, estimate, limit_edits, prefix_mark, read_body
from routes.gateway.faults import Fault
from routes.gateway.forms import model_of_form, with_model
from routes.gateway.jsonspans import members, named
from routes.gateway.paths import find_path
from routes.gateway.records import RouteRecord, TargetRecord
from tests.support.upstream import compact

CHAT = find_path(b"/v1/chat/completions").path
RESPONSES = find_path(b"/v1/responses").path

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
layouts = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")])


def edit(body: bytes, **changes) -> bytes:
    asked = read_body(body, CHAT)
    given = {"model": asked.model, "limits": {}, "usage": False, "continuous": False, **changes}
    return edited(body, asked, **given)


@given(st.dictionaries(st.text(max_size=8), values, max_size=6), layouts, st.booleans())
@settings(max_examples=300, deadline=None)
def test_the_members_of_any_object_are_found(value, layout, ascii_only):
    text = json.dumps(value, separators=layout, ensure_ascii=ascii_only)
    data = text.encode("utf-8", "surrogatepass")
    found = [(json.loads(b'"' + m.key + b'"'), json.loads(data[m.start : m.end])) for m in members(data)]
    assert found == list(value.items())


@given(st.dictionaries(st.text(max_size=8), values, max_size=5), layouts, st.booleans(), st.text(min_size=1))
@settings(max_examples=300, deadline=None)
def test_another_model_and_the_wish_for_usage_change_nothing_else(value, layout, ascii_only, model):
    if not model.strip():
        return
    value = {**value, "model": model, "stream": True, "stream_options": None}
    body = json.dumps(value, separators=layout, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        read_body(body, CHAT)
    except Fault:
        # half a surrogate pair written as bytes is no UTF-8
        return
    changed = edit(body, model="the/target", usage=True)
    expected = {**value, "model": "the/target", "stream_options": {"include_usage": True}}
    assert json.loads(changed) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"a","n":1}', b'{"model":"t","n":1}'),
        (b'{"model": "a"}', b'{"model": "t"}'),
        (b'  {\n"model"\t:\r\n"a" }\n', b'  {\n"model"\t:\r\n"t" }\n'),
        (b'{"x":{"model":"a"},"model":"a"}', b'{"x":{"model":"a"},"model":"t"}'),
        (b'{"x":"\\"model\\":\\"a\\"","model":"a"}', b'{"x":"\\"model\\":\\"a\\"","model":"t"}'),
        (b'{"x":"\\\\","model":"a"}', b'{"x":"\\\\","model":"t"}'),
        (b'{"m\\u006fdel":"a","x":{"model":"a"}}', b'{"m\\u006fdel":"t","x":{"model":"a"}}'),
        (b'{"model":"b","model":"a"}', b'{"model":"t","model":"t"}'),
        (b'{"model":"\\u0061"}', b'{"model":"t"}'),
        (
            b'{"big":123456789012345678901234567890,"e":1E+2,"model":"a"}',
            b'{"big":123456789012345678901234567890,"e":1E+2,"model":"t"}',
        ),
        (
            '{"t":"\x85\u2028\u2029🙂","model":"a"}'.encode(),
            '{"t":"\x85\u2028\u2029🙂","model":"t"}'.encode(),
        ),
        (b'{"t":"\\ud83d","model":"a"}', b'{"t":"\\ud83d","model":"t"}'),
        (b'{"a":[[],{},[{"model":"a"}]],"model":"a"}', b'{"a":[[],{},[{"model":"a"}]],"model":"t"}'),
    ],
)
def test_the_model_is_put_in_place(body, expected):
    assert edit(body, model="t") == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", {"include_usage": True}),
        (',"stream_options":null', {"include_usage": True}),
        (',"stream_options":{}', {"include_usage": True}),
        (',"stream_options": { }', {"include_usage": True}),
        (',"stream_options":{"include_usage":false}', {"include_usage": True}),
        (',"stream_options":{"include_usage" : null ,"x":1}', {"include_usage": True, "x": 1}),
        (
            ',"stream_options":{"x":{"include_usage":false}}',
            {"include_usage": True, "x": {"include_usage": False}},
        ),
        (',"stream_options":{"include_usage":true}', {"include_usage": True}),
    ],
)
@pytest.mark.parametrize("continuous", [False, True])
def test_the_usage_is_asked_for(options, expected, continuous):
    body = ('{"model":"a","stream":true' + options + "}").encode()
    changed = json.loads(edit(body, usage=True, continuous=continuous))
    assert changed["stream_options"] == (
        {**expected, "continuous_usage_stats": True} if continuous else expected
    )


def test_nothing_is_changed_where_nothing_has_to_be():
    body = b'{"model":"a","stream":true,"stream_options":{"include_usage":true}}'
    assert edit(body, usage=True) is body


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"[]", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"model":"a"}x', "invalid_json"),
        (b'{"model":"a","t":"\xff"}', "invalid_json"),
        (b'"model"', "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "invalid_json"),
        (b"{}", "model_missing"),
        (b'{"model":null}', "model_missing"),
        (b'{"model":5}', "model_missing"),
        (b'{"model":" "}', "model_missing"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_body_that_cannot_be_routed_is_refused_in_words(body, code):
    with pytest.raises(Fault) as caught:
        read_body(body, CHAT)
    assert (caught.value.status, caught.value.code) == (400, code)


@pytest.mark.parametrize("value", ["true", "1", "1.0", '"true"', '"1"', '"yes"', '"On"', '"tRuE"', '"T"'])
def test_a_stream_is_known_as_the_engine_knows_it(value):
    assert read_body(b'{"model":"a","stream":%b}' % value.encode(), CHAT).stream


@pytest.mark.parametrize("value", ["false", "0", "null", '"false"', "[]", "{}", "2"])
def test_no_stream_is_known_too(value):
    assert not read_body(b'{"model":"a","stream":%b}' % value.encode(), CHAT).stream


def route(**fields) -> RouteRecord:
    targets = (TargetRecord(1, 1, "http://a", "a", max_model_len=32768),)
    return RouteRecord(1, "qwen3-8b", targets=targets, **fields)


def test_too_many_tokens_are_refused_and_both_limits_named():
    asked = read_body(b'{"model":"a","max_tokens":50000}', CHAT)
    with pytest.raises(Fault) as caught:
        limit_edits(asked, route(max_tokens=8192))
    fault = caught.value
    assert (fault.status, fault.code, fault.param) == (400, "max_tokens_too_large", "max_tokens")
    for part in ("50000", "8192", "32768", "qwen3-8b"):
        assert part in fault.message
    assert limit_edits(asked, route(max_tokens=8192, max_tokens_rule="pass")) == {}
    assert limit_edits(asked, route(max_tokens=50000)) == {}
    assert limit_edits(asked, route()) == {}


def test_too_many_tokens_are_lowered_where_the_route_says_so():
    body = b'{"model":"a","max_tokens":50000,"max_completion_tokens":9000.0,"n":{"max_tokens":99999}}'
    asked = read_body(body, CHAT)
    limits = limit_edits(asked, route(max_tokens=8192, max_tokens_rule="clamp"))
    changed = edited(body, asked, model="a", limits=limits, usage=False, continuous=False)
    expected = b'{"model":"a","max_tokens":8192,"max_completion_tokens":8192,"n":{"max_tokens":99999}}'
    assert changed == expected
    asked = read_body(b'{"model":"a","max_output_tokens":9000,"max_tokens":99999}', RESPONSES)
    assert asked.limits == {"max_output_tokens": 9000}


@pytest.mark.parametrize(
    "value",
    ['"50000"', '" 50000 "', '"5_0000"', '"50000.0"', '"\\u0035\\u0030000"', "5e4", "Infinity", "NaN"],
)
def test_a_number_in_quotes_is_a_limit_as_it_is_to_the_engine(value):
    body = b'{"model":"a","max_tokens":%b}' % value.encode()
    asked = read_body(body, CHAT)
    with pytest.raises(Fault) as caught:
        limit_edits(asked, route(max_tokens=8192))
    assert caught.value.code == "max_tokens_too_large"
    limits = limit_edits(asked, route(max_tokens=8192, max_tokens_rule="clamp"))
    changed = edited(body, asked, model="a", limits=limits, usage=False, continuous=False)
    assert changed == b'{"model":"a","max_tokens":8192}'


def test_of_two_models_the_engine_sees_only_the_one_that_was_decided_on():
    for body in (
        b'{"model":"b","n":1,"model":"a"}',
        b'{"mod\\u0065l":"b","n":1,"model":"a"}',
        b'{"model":"b","n":1,"\\u006dodel":"a"}',
        b'{"model":["b"],"n":1,"model":"\\u0061"}',
    ):
        asked = read_body(body, CHAT)
        assert asked.model == "a"
        changed = edited(body, asked, model="a", limits={}, usage=False, continuous=False)
        values = [changed[member.start : member.end] for member in named(changed, "model")]
        assert [json.loads(value) for value in values] == ["a", "a"]


@pytest.mark.parametrize(
    "value", ["true", '"9"', "null", "-1", "1e400", "-Infinity", '"nan"', "12345678901234567890123"]
)
def test_odd_limits_are_the_engines_to_refuse_or_ours(value):
    body = b'{"model":"a","max_tokens":%b}' % value.encode()
    try:
        asked = read_body(body, CHAT)
        limit_edits(asked, route(max_tokens=8192))
        estimate(asked, len(body), 32768)
    except Fault as fault:
        assert fault.code in {"max_tokens_too_large", "invalid_json"}


def test_the_estimate_is_bounded_by_what_an_engine_takes():
    asked = read_body(b'{"model":"a","max_tokens":1000,"n":3}', CHAT)
    assert estimate(asked, 4000, 32768) == (1000, 4000)
    assert estimate(asked, 40_000_000, 32768) == (32768, 32768)
    assert estimate(read_body(b'{"model":"a"}', CHAT), 400, 32768)[1] > 100


@pytest.mark.parametrize(
    ("path", "body", "size", "tokens"),
    [
        # each answer that the engine works out, also those that it does not give back
        ("completions", {"prompt": "a", "max_tokens": 10, "n": 2, "best_of": 5}, 400, 100 + 50),
        ("completions", {"prompt": "a", "max_tokens": 10, "n": 3, "best_of": 2}, 400, 100 + 30),
        ("completions", {"prompt": "a", "max_tokens": 10, "best_of": None}, 400, 100 + 10),
        # to each of several prompts
        ("completions", {"prompt": ["a", "b", "c"], "max_tokens": 10}, 400, 100 + 30),
        ("completions", {"prompt": ["a", "b", "c"], "max_tokens": 10, "n": 2}, 400, 100 + 60),
        ("completions", {"prompt": [[1, 2], [3]], "max_tokens": 10}, 400, 100 + 20),
        ("completions", {"prompt": [1, 2, 3], "max_tokens": 10}, 400, 100 + 10),
        ("completions", {"prompt": [], "max_tokens": 10}, 400, 100 + 10),
        # an engine's length is for one of them
        ("completions", {"prompt": ["a"] * 4, "max_tokens": 10_000}, 8000, 2000 + 4 * 500),
        ("completions", {"prompt": ["a"] * 4, "max_tokens": 10_000}, 80_000, 4000),
        ("chat/completions", {"messages": [], "max_tokens": 10, "n": 4}, 400, 100 + 40),
        # nothing is made but numbers
        ("embeddings", {"input": ["a"] * 10}, 36_000, 9000),
        ("embeddings", {"input": "a"}, 400, 100),
        ("rerank", {"query": "a", "documents": ["a"] * 10}, 36_000, 9000),
    ],
)
def test_what_is_reserved_is_for_every_prompt_and_every_answer(path, body, size, tokens):
    found = find_path(f"/v1/{path}".encode()).path
    asked = read_body(compact({"model": "a", **body}), found)
    assert estimate(asked, size, 1000)[1] == tokens


def variants(value: dict) -> list[bytes]:
    """One value as different clients write it."""
    backwards = json.loads(json.dumps(value), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    return [
        compact(value),
        json.dumps(value).encode(),
        json.dumps(value, ensure_ascii=False, indent=2).encode(),
        json.dumps(backwards).encode(),
        json.dumps(backwards, ensure_ascii=False, indent="\t").encode(),
    ]


TEXT = 'Du bist ein „Helfer“, 一个耐心的助手 📦 "quoted"\n' * 3


@pytest.mark.parametrize(
    "value",
    [
        {"messages": [{"role": "system", "content": TEXT}, {"role": "user", "content": "Wo?"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": TEXT}]}]},
        {"messages": [{"role": "system", "content": TEXT * 40}], "temperature": 1},
        {"system": TEXT, "messages": [{"role": "user", "content": "messages"}]},
        {"system": [{"type": "text", "text": TEXT}], "messages": [{"role": "user", "content": "hi"}]},
        {"instructions": TEXT, "input": "Wo?"},
        {"prompt": TEXT},
        {"prompt": [TEXT, "b"]},
    ],
)
def test_an_equal_prompt_has_an_equal_mark_however_it_is_written(value):
    asked = {"model": "a", "user": "messages", **value, "max_tokens": 3}
    marks = {prefix_mark(body) for body in variants(asked)}
    assert len(marks) == 1
    changed = json.loads(json.dumps(asked).replace("Helfer", "Freund"))
    assert prefix_mark(compact(changed)) not in marks
    other = {**asked, "model": "b", "user": "x", "max_tokens": 4}
    assert prefix_mark(compact(other)) in marks


@given(st.binary(max_size=300))
def test_a_mark_is_found_in_anything(noise):
    for start in (b"", b'{"messages":', b'{"system":"', b'{"prompt":["', b'{"input":{"content":"\\'):
        assert 0 <= prefix_mark(start + noise) < 1 << 32


def test_equal_beginnings_have_equal_marks():
    one = b'{"model":"a","messages":[{"role":"system","content":"' + b"x" * 2000 + b'"}],"n":1}'
    other = b'{"model":"b","messages":[{"role":"system","content":"' + b"x" * 3000 + b'y"}]}'
    assert prefix_mark(one) == prefix_mark(other)
    assert prefix_mark(one) != prefix_mark(one.replace(b"xx", b"yy", 1))


def form(*fields: tuple[str, bytes], boundary: str = "b0undary") -> tuple[bytes, bytes]:
    parts = [
        b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
        % (boundary.encode(), name.encode(), value)
        for name, value in fields
    ]
    kind = f'multipart/form-data; boundary="{boundary}"'.encode()
    return b"".join(parts) + b"--%b--\r\n" % boundary.encode(), kind


def test_a_form_says_its_model_and_takes_another():
    audio = b"RIFF\r\n--b0undar\r\n\x00\xff"
    body, kind = form(("file", audio), ("model", b"whisper "), ("language", b"zh"))
    assert model_of_form(body, kind) == "whisper"
    changed = with_model(body, kind, "/models/whisper")
    assert model_of_form(changed, kind) == "/models/whisper"
    assert audio in changed
    assert len(changed) == len(body) + len("/models/whisper") - len("whisper ")


PART = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nopen\r\n'
OTHER = b"\r\n\r\nclosed\r\n"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("boundary=b", PART + PART.replace(b"open", b"closed")),
        ("boundary=b", b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n\r\n--bc' + PART[3:] + PART),
        ("boundary=b", PART + b"--b\r\nX: " + b"y" * 5000 + b"\r\n" + PART[5:].replace(b"open", b"closed")),
        ("boundary=b", PART + b'--b\r\nContent-Disposition: form-data; name="x"; name="model"' + OTHER),
        ("boundary=b", PART + b"--b\r\nContent-Disposition: form-data; name*=utf-8''model" + OTHER),
        ("boundary=b", PART + b'--b\r\nContent-Disposition: form-data; x="\r\n "; name="model"' + OTHER),
        (
            "boundary=b",
            PART
            + b'--b\r\nContent-Disposition: form-data; name="x"\r\n'
            + b'Content-Disposition: form-data; name="model"'
            + OTHER,
        ),
        ("boundary=b; boundary=c", PART),
        ("boundary=c; Boundary*=utf-8''b", PART),
    ],
)
def test_a_form_that_another_reader_may_read_otherwise_is_refused(kind, body):
    with pytest.raises(Fault) as caught:
        model_of_form(body + b"--b--\r\n", f"multipart/form-data; {kind}".encode())
    assert (caught.value.status, caught.value.code) == (400, "form_expected")


@given(st.binary(max_size=300), st.integers(0, 300))
@settings(max_examples=200, deadline=None)
def test_no_form_is_read_wrongly(noise, cut):
    whole, kind = form(("file", noise), ("model", b"whisper"))
    if b"--b0undary" not in noise:
        assert model_of_form(whole, kind) == "whisper"
    for body in (whole[:cut], noise, noise + whole):
        try:
            model_of_form(body, kind)
        except Fault as fault:
            assert fault.status == 400


def test_named_finds_doubles_and_ignores_what_lies_deeper():
    data = b'{"a":1,"b":{"a":2},"a":[{"a":3}]}'
    assert [data[member.start : member.end] for member in named(data, "a")] == [b"1", b'[{"a":3}]']
