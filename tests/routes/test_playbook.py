"""The playbook's JSON is read as it stands; every mistake is told with its entry."""

from __future__ import annotations

import json

import pytest

from engines.vllm.notes import Unreadable
from routes.baseurl import read_base_url
from routes.naming import hints, is_name
from routes.playbook import Entry, read_routes, write_routes
from routes.strength import weaknesses
from routes.warnings import RouteFacts, TargetFacts, key_warnings, route_warnings

ONE = {
    "model_name": "qwen3-8b",
    "provider": "openai-compatible",
    "base_url": "http://your-vllm-host:8000/v1",
    "api_key": "EMPTY",
    "max_tokens": 32768,
    "timeout": 120,
}


def test_the_playbooks_own_example_is_read():
    expected = Entry("qwen3-8b", "http://your-vllm-host:8000", "", 32768, 120.0)
    assert read_routes(json.dumps(ONE)).entries == (expected,)
    assert read_routes(json.dumps([ONE])).entries == (expected,)


def test_what_is_written_is_what_was_read_without_the_key():
    written = write_routes(read_routes(json.dumps({**ONE, "api_key": "sk-real"})).entries)
    assert written == [{name: value for name, value in ONE.items() if name != "api_key"}]


@pytest.mark.parametrize(
    ("key", "kept"), [("EMPTY", ""), ("empty", ""), ("", ""), (None, ""), (" sk-1 ", "sk-1"), ("None", "")]
)
def test_a_key_that_is_none(key, kept):
    assert read_routes(json.dumps({**ONE, "api_key": key})).entries[0].api_key == kept
    without = {name: value for name, value in ONE.items() if name != "api_key"}
    assert read_routes(json.dumps(without)).entries[0].api_key == ""


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("http://vllm:8000/v1", "http://vllm:8000"),
        ("http://vllm:8000/v1/", "http://vllm:8000"),
        ("http://vllm:8000", "http://vllm:8000"),
        (" http://VLLM:8000/ ", "http://vllm:8000"),
        ("https://example.org/api/v1", "https://example.org/api"),
        ("https://example.org/v1/v1", "https://example.org/v1"),
        ("http://[2001:db8::1]:8000/v1", "http://[2001:db8::1]:8000"),
    ],
)
def test_a_base_url_with_and_without_v1(text, kept):
    assert read_base_url(text).text == kept


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "base_url_missing"),
        ("vllm:8000/v1", "base_url_no_scheme"),
        ("ftp://vllm/v1", "base_url_no_scheme"),
        ("http://", "base_url_no_scheme"),
        ("http:///v1", "base_url_unreadable"),
        ("http://u:p@vllm:8000", "base_url_has_credentials"),
        ("http://vllm:8000/v1?key=1", "base_url_has_query"),
        ("http://vllm:8000/v1/chat/completions", "base_url_is_endpoint"),
        ("http://vllm:99999", "base_url_unreadable"),
        ("http://vl lm:8000", "base_url_unreadable"),
        ("http://[::1", "base_url_unreadable"),
    ],
)
def test_a_base_url_that_cannot_be_used(text, code):
    with pytest.raises(Unreadable) as refused:
        read_base_url(text)
    assert refused.value.note.code == code


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("127.3.2.1", True), ("vllm", False)],
)
def test_what_localhost_is(host, local):
    assert read_base_url(f"http://{host}:8000").is_loopback is local


def test_every_mistake_is_told_with_its_entry():
    reading = read_routes(
        json.dumps(
            [
                ONE,
                {**ONE, "model_name": "two words"},
                {**ONE, "model_name": "third", "base_url": "vllm:8000", "max_tokens": "many"},
                {**ONE, "provider": "bedrock", "timeout": -1},
                "text",
                {},
            ]
        )
    )
    said = [note.text() for note in reading.errors]
    assert [note.code for note in reading.errors] == [
        "name_unusable",
        "base_url_no_scheme",
        "number_unreadable",
        "provider_unknown",
        "number_unreadable",
        "entry_unreadable",
        "name_missing",
        "base_url_missing",
    ]
    assert said[1].startswith("Entry 3 (third), base_url: The base URL has to begin with http://")
    assert "max_tokens" in said[2] and "timeout" in said[4]


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "null", '"x"', '{"a": 1'])
def test_what_is_no_route_is_said(text):
    reading = read_routes(text)
    assert reading.entries == ()
    assert reading.errors


def test_fields_that_are_not_used_are_named():
    reading = read_routes(json.dumps({**ONE, "rpm": 60}))
    assert len(reading.entries) == 1
    assert "rpm" in reading.notes[0].text()


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("qwen3-8b-v1", []),
        ("qwen3-32b-awq", []),
        ("qwen3-30b-a3b-fp8", []),
        ("qwen3-8b", ["name_has_no_version"]),
        ("assistant", ["name_has_no_size"]),
        ("Qwen3-8B-v1", ["name_has_capitals"]),
        ("Qwen/Qwen3-8B-AWQ", ["name_has_path"]),
        ("bge-m3", []),
    ],
)
def test_the_convention_is_hinted_at(name, codes):
    assert [note.code for note in hints(name)] == codes


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("qwen3-8b-v1", True), ("Qwen/Qwen3-8B", True), ("a", True), ("通义-8b", True), ("", False),
        ("two words", False), ("/qwen", False), ("qwen/", False), ("a//b", False), ('a"b', False),
        ("x" * 201, False), ("a\nb", False), ("a\x00", False),
    ],
)  # fmt: skip
def test_what_may_be_a_name(name, fits):
    assert is_name(name) is fits


def codes(route: RouteFacts) -> list[str]:
    return [note.code for note in route_warnings(route)]


def engine(name="engine-1", **facts) -> TargetFacts:
    return TargetFacts(
        name, **{"served_names": ("qwen3-8b-v1",), "max_model_len": 32768, "state": "ready", **facts}
    )


def test_a_route_that_fits_has_no_warning():
    assert codes(RouteFacts("qwen3-8b-v1", max_tokens=32768, targets=[engine(), engine("engine-2")])) == []


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        ({"targets": []}, ["no_target"]),
        ({"targets": [engine(enabled=False)]}, ["targets_disabled"]),
        ({"targets": [engine(), engine("engine-2", enabled=False)]}, ["some_targets_disabled"]),
        ({"max_tokens": 40000, "targets": [engine()]}, ["max_tokens_above_engine"]),
        ({"context_length": 40000, "targets": [engine()]}, ["context_above_engine"]),
        ({"targets": [engine(), engine("engine-2", max_model_len=8192)]}, ["lengths_differ"]),
        ({"targets": [engine(served_names=("Qwen/Qwen3-8B",))]}, ["served_name_differs"]),
        ({"targets": [engine(model="other")]}, ["model_not_served"]),
        ({"targets": [engine(model="qwen3-8b-v1")]}, []),
        ({"targets": [engine(state="stopped")]}, ["target_not_ready"]),
        ({"targets": [engine(max_model_len=None)], "max_tokens": 99}, []),
        ({"targets": [TargetFacts("x", base_url="http://localhost:8000")]}, ["base_url_localhost"]),
        ({"targets": [TargetFacts("x", base_url="http://vllm:8000")]}, []),
        ({"targets": [engine()], "fallback": "big", "fallback_enabled": False}, ["fallback_off"]),
    ],
)
def test_what_a_route_is_warned_of(route, expected):
    assert codes(RouteFacts("qwen3-8b-v1", **route)) == expected


def test_a_warning_names_both_limits():
    said = route_warnings(RouteFacts("qwen3-8b-v1", max_tokens=40000, targets=[engine()]))[0].text()
    assert "40000" in said and "32768" in said


def test_a_key_that_names_what_is_not_there():
    found = key_warnings(["qwen3-8b-v1", "qwen3-8b-v2", "off"], {"qwen3-8b-v1", "off"}, {"off"})
    assert [note.code for note in found] == ["model_unknown", "model_off"]
    assert "“qwen3-8b-v1”?" in found[0].text()
    assert key_warnings(None, set(), set()) == []


def test_random_secrets_are_strong():
    assert weaknesses("cPq7Lm2ZxT9vWb4KdR8nYs3H") == []
    assert weaknesses("9f86d081884c7d659a2feaa0c55ad015") == []


@pytest.mark.parametrize(
    ("secret", "code"),
    [
        ("short", "secret_short"),
        ("EMPTY", "secret_placeholder"),
        ("sk-xxxxxxxxxxxxxxxxxxxxxxxx", "secret_placeholder"),
        ("your-api-key-goes-here-please", "secret_placeholder"),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "secret_pattern"),
        ("kd83hdk83hdk83hdk83hdk83hd", "secret_pattern"),
        ("x7Kq-abcdefghijkl-92mWzP4r", "secret_pattern"),
        ("K7 mQ2 pX9 vL4 tR8 wB3 nD6", "secret_not_sendable"),
        ("abbaababbabaabbabaabbaab", "secret_guessable"),
        ("aB3" * 400, "secret_long"),
    ],
)
def test_why_a_secret_is_weak(secret, code):
    assert code in [note.code for note in weaknesses(secret)]
