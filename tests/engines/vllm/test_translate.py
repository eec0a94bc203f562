"""One profile for many releases: what each flag becomes, and that nothing goes missing unsaid."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.vllm import catalog
from engines.vllm.command import serve_command, serve_environment
from engines.vllm.fields import Kind, fields
from engines.vllm.notes import Severity
from engines.vllm.reading import read_text
from engines.vllm.releases import release
from engines.vllm.spec import ServeSpec
from engines.vllm.translate import Origin, translate
from engines.vllm.validate import read_spec

REFERENCE = """vllm serve Qwen/Qwen3-8B-Instruct --host 0.0.0.0 --port 8000 --tensor-parallel-size 1 \\
  --max-model-len 32768 --gpu-memory-utilization 0.90 --enable-prefix-caching \\
  --enable-chunked-prefill --max-num-batched-tokens 8192 --max-num-seqs 64 \\
  --block-size 16 --swap-space 8 --served-model-name qwen3-8b --disable-log-requests"""


def spec(extra: str = "", **values) -> ServeSpec:
    return ServeSpec("Qwen/Qwen3-8B", values=values, extra_arguments=extra)


def line(translation, flag: str):
    return next(one for one in translation.lines if one.written and one.written[0].split("=")[0] == flag)


def words(version: str, extra: str = "", **values) -> list[str]:
    return translate(spec(extra, **values), release(version)).words


@pytest.mark.parametrize(
    ("version", "dropped"),
    [
        ("0.6.3.post1", set()),
        ("0.10.2", {"--disable-log-requests"}),
        ("0.17.1", {"--disable-log-requests"}),
        ("0.18.0", {"--swap-space", "--disable-log-requests"}),
        ("0.32.0", {"--swap-space", "--disable-log-requests"}),
        ("0.33.0", {"--swap-space", "--disable-log-requests"}),
    ],
)
def test_the_reference_command_holds_only_flags_that_the_release_has(version, dropped):
    here = release(version)
    translation = translate(read_text(REFERENCE).spec, here)
    assert {one.written[0] for one in translation.lines if one.origin is Origin.DROPPED} == dropped
    assert not translation.refused
    flags = [word for word in translation.words if word.startswith("--")]
    assert flags
    assert all(here.resolve(flag) is not None for flag in flags)
    # each change is explained, and the operator may make it his own with a click
    for one in translation.lines:
        if one.origin is Origin.DROPPED:
            assert one.note is not None
            assert one.written[0] in one.note.text()
            assert [list(mend.sets.values()) for mend in one.note.mends] == [[""]]


@pytest.mark.parametrize(
    ("version", "extra", "expected"),
    [
        ("0.33.0", "--task embed", ["--runner", "pooling", "--convert", "embed"]),
        ("0.33.0", "--task auto", []),
        ("0.33.0", "--worker-use-ray", ["--distributed-executor-backend", "ray"]),
        ("0.33.0", "--disable-mm-preprocessor-cache", ["--mm-processor-cache-gb", "0"]),
        ("0.33.0", "--cuda-graph-sizes 1 2", ["--cudagraph-capture-sizes", "1", "2"]),
        ("0.33.0", "--device cuda --use-v2-block-manager --enable-reasoning", []),
        ("0.33.0", "--no-disable-log-requests", ["--enable-log-requests"]),
        ("0.16.0", "--no-disable-log-requests", ["--enable-log-requests"]),
        (
            "0.33.0",
            "--guided-decoding-backend xgrammar",
            ["--structured-outputs-config", '{"backend": "xgrammar"}'],
        ),
        (
            "0.33.0",
            "--eplb-window-size 100 --eplb-step-interval 7",
            ["--eplb-config", '{"window_size": 100, "step_interval": 7}'],
        ),
        (
            "0.33.0",
            """--rope-scaling '{"type": "yarn"}'""",
            ["--hf-overrides", '{"rope_scaling": {"type": "yarn"}}'],
        ),
        (
            "0.10.2",
            "--speculative-model [ngram] --num-speculative-tokens 3 --ngram-prompt-lookup-max 4",
            [
                "--speculative-config",
                '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}',
            ],
        ),
        ("0.8.3", "--max-model-len 1K", ["--max-model-len", "1024"]),
        ("0.33.0", "--api-server-count 2", ["--api-server-count", "2"]),
    ],
)
def test_old_flags_are_said_in_the_new_way(version, extra, expected):
    assert words(version, extra) == expected


@pytest.mark.parametrize(
    ("version", "values", "expected"),
    [
        ("0.10.0", {"enable_log_requests": False}, ["--disable-log-requests"]),
        ("0.10.0", {"enable_log_requests": True}, []),
        ("0.10.1", {"enable_log_requests": False}, ["--no-enable-log-requests"]),
        ("0.8.4", {"enable_chunked_prefill": False}, ["--enable-chunked-prefill=False"]),
        ("0.8.5", {"enable_chunked_prefill": False}, ["--no-enable-chunked-prefill"]),
        ("0.6.3.post1", {"enable_prefix_caching": False}, []),
        ("0.9.2", {"async_scheduling": False}, []),
        (
            "0.8.4",
            {"limit_mm_per_prompt": {"image": 2, "video": 1}},
            ["--limit-mm-per-prompt", "image=2,video=1"],
        ),
        ("0.8.5", {"limit_mm_per_prompt": {"image": 2}}, ["--limit-mm-per-prompt", '{"image": 2}']),
        ("0.13.0", {"max_model_len": "auto"}, []),
        ("0.14.0", {"max_model_len": "auto"}, ["--max-model-len", "auto"]),
        ("0.9.2", {"runner": "pooling"}, ["--task", "embed"]),
        (
            "0.8.5",
            {"reasoning_parser": "deepseek_r1"},
            ["--reasoning-parser", "deepseek_r1", "--enable-reasoning"],
        ),
        ("0.10.0", {"reasoning_parser": "deepseek_r1"}, ["--reasoning-parser", "deepseek_r1"]),
    ],
)
def test_fields_are_said_in_the_old_way(version, values, expected):
    assert words(version, **values) == expected


def test_what_was_a_variable_once_goes_into_the_environment():
    old = translate(spec(attention_backend="FLASHINFER"), release("0.10.2"))
    assert (old.words, old.variables) == ([], {"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    started = serve_environment(
        spec(attention_backend="FLASHINFER"), api_key="", marker="m", release=release("0.10.2")
    )
    assert started["VLLM_ATTENTION_BACKEND"] == "FLASHINFER"
    assert words("0.33.0", attention_backend="FLASHINFER") == ["--attention-backend", "FLASHINFER"]


@pytest.mark.parametrize(
    ("version", "extra", "values", "code"),
    [
        ("0.10.1", "", {"kv_cache_memory_bytes": 1}, "flag_too_new"),
        ("0.33.0", "--rope-theta 1000", {}, "flag_refused"),
        ("0.33.0", "--max-nun-seqs 4", {}, "unknown_here"),
        ("0.10.2", "", {"kv_cache_dtype": "nvfp4"}, "choice_unknown_here"),
        ("0.33.0", "", {"quantization": "gguf"}, "quantization_gone"),
        ("0.33.0", "--stream-interval often", {}, "wrong_type"),
        ("0.10.2", "--block-size 24", {}, "choice_unknown_here"),
    ],
)
def test_what_cannot_be_said_is_refused_and_stays_in_the_command(version, extra, values, code):
    translation = translate(spec(extra, **values), release(version))
    (refused,) = translation.refused
    assert refused.note.code == code
    assert refused.note.severity is Severity.ERROR
    assert refused.words == refused.written


def test_an_unknown_flag_is_no_error_where_the_release_itself_is_unknown():
    translation = translate(spec("--max-nun-seqs 4"), release("0.34.0"))
    assert (translation.refused, translation.words) == ([], ["--max-nun-seqs", "4"])


def test_deprecated_flags_are_said_with_what_takes_their_place():
    (found,) = translate(spec("--task embed"), release("0.10.2")).notes
    assert (found.code, found.severity) == ("deprecated_flag", Severity.WARNING)
    assert "--runner" in found.text()


def test_what_the_profile_has_in_a_json_field_stays_beside_what_older_flags_said():
    translation = translate(
        spec('--rope-scaling \'{"type": "yarn"}\'', hf_overrides={"head_dim": 64}), release("0.33.0")
    )
    assert translation.words[0] == "--hf-overrides"
    assert json.loads(translation.words[1]) == {"rope_scaling": {"type": "yarn"}, "head_dim": 64}


def mended(profile: ServeSpec, sets) -> ServeSpec:
    """The profile as the form would read it after a click."""
    from engines.vllm.fields import value_text

    texts = {key: value_text(value) for key, value in profile.values.items()}
    texts.update({key: value for key, value in sets.items() if key in fields()})
    reading = read_spec(
        model=sets.get("model", profile.model),
        values=texts,
        gpus=sets.get("gpus", profile.gpus),
        extra_arguments=sets.get("extra_arguments", profile.extra_arguments),
    )
    assert not reading.errors, [note.text() for note in reading.errors]
    return reading.spec


@pytest.mark.parametrize(
    "extra",
    [
        "--task embed",
        "--swap-space 8 --api-server-count 2",
        "--api-server-count 2 --worker-use-ray",
        "--guided-decoding-backend xgrammar --stream-interval 2 --guided-decoding-disable-fallback",
        '--rope-scaling \'{"type": "yarn"}\' --api-server-count 2',
        "--max-num-queued-req-s 4 --api-server-count 2",
        "--kv-cache-dtype=fp9",
    ],
)
def test_a_mend_leaves_the_same_command_and_nothing_more_to_say(extra):
    profile, here = spec(extra), release("0.33.0")
    for _round in range(5):
        translation = translate(profile, here)
        sets = next((mend.sets for note in translation.notes for mend in note.mends), None)
        if sets is None:
            break
        before = translation.words
        profile = mended(profile, sets)
        if not translation.refused:
            assert sorted(translate(profile, here).words) == sorted(before)
    assert translation.notes == []


_VALUES = {
    Kind.BOOL: st.booleans(),
    Kind.INT: st.integers(1, 64),
    Kind.SIZE: st.integers(1, 2**20),
    Kind.FLOAT: st.sampled_from([0.5, 0.9]),
    Kind.TEXT: st.sampled_from(["auto", "x"]),
    Kind.JSON: st.just({"image": 2}),
}


@st.composite
def profiles(draw):
    chosen = draw(st.lists(st.sampled_from(list(fields())), unique=True, max_size=12))
    values = {}
    for key in chosen:
        definition = fields()[key]
        options = (
            st.sampled_from(definition.choices)
            if definition.kind is Kind.CHOICE
            else _VALUES[definition.kind]
        )
        value = draw(options)
        if not (value is False and not definition.can_turn_off):
            values[key] = value
    return ServeSpec("m", values=values)


@settings(max_examples=150, deadline=None)
@given(profile=profiles(), version=st.sampled_from(catalog.versions()))
def test_no_release_is_handed_a_flag_that_it_refuses_unless_that_is_said(profile, version):
    here = release(version)
    translation = translate(profile, here)
    unsaid = [one for one in translation.lines if one.words != one.written and one.note is None]
    assert unsaid == []
    refused = {word for one in translation.refused for word in one.words}
    for one in translation.lines:
        for word in one.words:
            if word.startswith("--") and word not in refused:
                assert here.resolve(word.partition("=")[0]) is not None, (version, word)
    # every field is accounted for
    said = {one.field for one in translation.lines}
    assert set(profile.values) <= said


def test_the_command_of_a_start_is_the_translated_one():
    command = serve_command(
        spec("--swap-space 4", max_num_seqs=8),
        executable="vllm",
        bind_address="127.0.0.1",
        port=8000,
        release=release("0.33.0"),
    )
    assert command[3:] == ["--host", "127.0.0.1", "--port", "8000", "--max-num-seqs", "8"]
