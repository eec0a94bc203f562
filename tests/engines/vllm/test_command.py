"""A spec becomes an argument list and an environment; what is shown pastes back and holds no secret."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.vllm.command import display_command, serve_command, serve_environment
from engines.vllm.fields import Field, Kind, fields, parse_size, read_value, value_text
from engines.vllm.notes import Unreadable
from engines.vllm.spec import ServeSpec, parse_gpus

SPEC = ServeSpec(
    model="Qwen/Qwen3-8B",
    served_names=("qwen3-8b-v1", "qwen3-8b"),
    values={"max_model_len": 32768, "gpu_memory_utilization": 0.9, "enable_prefix_caching": True},
    gpus="0-1",
    environment={"VLLM_LOGGING_LEVEL": "INFO"},
    secrets={"HF_TOKEN": "not-to-be-seen"},
    extra_arguments="--api-server-count 2",
)


def command(spec: ServeSpec) -> list[str]:
    return serve_command(spec, executable="/env/bin/vllm", bind_address="10.0.0.5", port=8001)


def through_a_shell(text: str) -> list[str]:
    printed = subprocess.run(
        ["/bin/sh", "-c", f"vllm() {{ printf '%s\\0' \"$@\"; }}\n{text}"], capture_output=True, check=True
    ).stdout.decode()
    return printed.split("\0")[:-1]


def test_it_builds_the_argument_list():
    assert command(SPEC) == [
        "/env/bin/vllm",
        "serve",
        "Qwen/Qwen3-8B",
        "--host",
        "10.0.0.5",
        "--port",
        "8001",
        "--served-model-name",
        "qwen3-8b-v1",
        "qwen3-8b",
        "--max-model-len",
        "32768",
        "--gpu-memory-utilization",
        "0.9",
        "--enable-prefix-caching",
        "--api-server-count",
        "2",
    ]


def test_it_leaves_absent_fields_to_vllm():
    assert command(ServeSpec("m"))[2:] == ["m", "--host", "10.0.0.5", "--port", "8001"]


def test_it_turns_a_switch_off_with_the_negation():
    words = command(ServeSpec("m", values={"enable_prefix_caching": False, "enforce_eager": True}))
    assert "--no-enable-prefix-caching" in words
    assert "--enforce-eager" in words


def test_it_attaches_a_value_that_begins_with_a_hyphen():
    assert "--seed=-1" in command(ServeSpec("m", values={"seed": -1}))


def test_it_refuses_extra_arguments_that_cannot_be_read():
    with pytest.raises(Unreadable, match="not closed"):
        command(ServeSpec("m", extra_arguments="--a 'b"))


def test_it_adds_what_kvadmin_needs_to_the_environment():
    environment = serve_environment(SPEC, api_key="engine-key", marker="marker")
    assert environment == {
        "PYTHONUNBUFFERED": "1",
        "VLLM_LOGGING_LEVEL": "INFO",
        "HF_TOKEN": "not-to-be-seen",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "VLLM_API_KEY": "engine-key",
        "SPT_NOENV": "1",
        "KVADMIN_START": "marker",
    }


def test_it_lets_no_variable_take_the_place_of_its_own():
    spec = ServeSpec("m", environment={"VLLM_API_KEY": "x", "KVADMIN_START": "x", "SPT_NOENV": "0"})
    environment = serve_environment(spec, api_key="k", marker="m")
    assert (environment["VLLM_API_KEY"], environment["KVADMIN_START"], environment["SPT_NOENV"]) == (
        "k",
        "m",
        "1",
    )


def test_it_shows_no_secret():
    shown = display_command(SPEC)
    assert "not-to-be-seen" not in shown
    assert "HF_TOKEN='********'" in shown
    assert "CUDA_VISIBLE_DEVICES=0,1" in shown
    assert "not-to-be-seen" not in repr(SPEC)


def value_of(field: Field) -> st.SearchStrategy:
    printable = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
    whole = st.integers(int(field.minimum or 0), int(min(field.maximum or 10**6, 10**9)))
    strategies = {
        Kind.INT: whole,
        Kind.SIZE: whole,
        Kind.FLOAT: st.floats(0.01, 1.0),
        Kind.BOOL: st.booleans() if field.can_turn_off else st.just(True),
        Kind.CHOICE: st.sampled_from(field.choices or ("x",)),
        Kind.TEXT: printable.map(str.strip).filter(bool),
        Kind.JSON: st.dictionaries(printable, st.integers() | printable | st.booleans(), max_size=3),
    }
    return strategies[field.kind]


values = st.fixed_dictionaries({}, optional={key: value_of(field) for key, field in fields().items()})


@given(values, st.sampled_from(["", "--api-server-count 2", "--middleware 'a b' --lora-modules x=y z=w"]))
@settings(max_examples=40, deadline=None)
def test_what_it_shows_gives_a_real_shell_the_same_arguments(values, extra):
    spec = ServeSpec("org/model name", ("a'b",), values, extra_arguments=extra)
    words = serve_command(spec, executable="vllm", bind_address="127.0.0.1", port=8000)
    shown = display_command(spec)
    if "********" in shown:
        return
    assert through_a_shell(shown) == words[1:]


@given(values)
def test_every_value_reads_back_from_its_text(values):
    for key, value in values.items():
        assert read_value(fields()[key], value_text(value)) == value


@pytest.mark.parametrize(
    ("text", "tokens"), [("32768", 32768), ("32k", 32000), ("32K", 32768), ("25.6k", 25600), ("1M", 2**20)]
)
def test_it_reads_sizes_as_vllm_does(text, tokens):
    assert parse_size(text) == tokens


@pytest.mark.parametrize("text", ["", "1.5K", "32kb", "k", "1e3", "٣", "3 2"])
def test_it_refuses_other_sizes(text):
    with pytest.raises(ValueError):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("", []),
        ("0,1", ["0", "1"]),
        ("0-2, 5", ["0", "1", "2", "5"]),
        ("0 - 1", ["0", "1"]),
        ("0，1", ["0", "1"]),
    ],
)
def test_it_reads_gpus(text, gpus):
    assert parse_gpus(text) == gpus


@pytest.mark.parametrize("text", ["a", "3-1", "0,0", "0-2,1", "-1", "1.5"])
def test_it_refuses_other_gpus(text):
    with pytest.raises(Unreadable):
        parse_gpus(text)
