"""A command line reads back into the spec that made it; pasted ones come in whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from engines.vllm.arguments import read_extra
from engines.vllm.command import serve_command
from engines.vllm.notes import Severity
from engines.vllm.reading import read_text, read_words
from engines.vllm.spec import ServeSpec
from tests.engines.vllm.test_command import values

REFERENCE = """vllm serve Qwen/Qwen3-8B-Instruct --host 0.0.0.0 --port 8000 --tensor-parallel-size 1
  --max-model-len 32768 --gpu-memory-utilization 0.90 --enable-prefix-caching
  --enable-chunked-prefill --max-num-batched-tokens 8192 --max-num-seqs 64
  --block-size 16 --swap-space 8 --served-model-name qwen3-8b --disable-log-requests"""
REFERENCE_SPEC = ServeSpec(
    model="Qwen/Qwen3-8B",  # the name it is published under
    served_names=("qwen3-8b",),
    values={
        "tensor_parallel_size": 1,
        "max_model_len": 32768,
        "gpu_memory_utilization": 0.9,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 64,
        "block_size": 16,
        "swap_space": 8.0,
        "disable_log_requests": True,
    },
)


@given(values)
@settings(max_examples=60, deadline=None)
def test_a_command_reads_back_into_its_spec(values):
    spec = ServeSpec("org/model", ("a", "b"), values, extra_arguments="--api-server-count 2")
    words = serve_command(spec, executable="/e/bin/vllm", bind_address="127.0.0.1", port=8000)
    command = read_words(words)
    assert command.spec == spec
    assert (command.host, command.port) == ("127.0.0.1", 8000)


@pytest.mark.parametrize(
    "text",
    [
        REFERENCE,
        REFERENCE.replace("\n", " \\\n"),
        REFERENCE.replace("\n", " \\"),
        REFERENCE.replace("\n", "\\ "),
        REFERENCE.replace("\n", " \\\r\n").replace("--", "—"),
        "$ " + REFERENCE.replace("\n", " \\\n> "),
        "[root@gpu-1 ~]# " + REFERENCE.replace("\n", " \\\n"),
        "(base) ops@gpu-1:~$ " + REFERENCE.replace("\n", " \\\n"),
        "nohup " + REFERENCE + " > vllm.log 2>&1 &",
        REFERENCE.replace("vllm serve", "python3 -m vllm.entrypoints.openai.api_server --model"),
        "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.6.3 "
        + REFERENCE.replace("vllm serve", "--model"),
    ],
)
def test_the_reference_command_comes_in_whole(text):
    command = read_text(text)
    assert command.understood
    assert command.spec == REFERENCE_SPEC
    assert command.port == 8000
    assert not [note for note in command.notes if note.severity is Severity.ERROR]
    assert {"address_left_out", "model_renamed"} <= {note.code for note in command.notes}


def test_it_says_that_line_breaks_were_mended():
    command = read_text(REFERENCE.replace("\n", " \\ "))
    assert "line_breaks_mended" in {note.code for note in command.notes}


def test_it_takes_variables_in_front():
    command = read_text("CUDA_VISIBLE_DEVICES=0,1 HF_TOKEN=abc VLLM_LOGGING_LEVEL=DEBUG vllm serve m -tp 2")
    assert command.spec.gpus == "0,1"
    assert command.spec.secrets == {"HF_TOKEN": "abc"}
    assert command.spec.environment == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert command.spec.values == {"tensor_parallel_size": 2}


def test_it_keeps_the_key_apart_and_unseen():
    command = read_text("vllm serve m --api-key sk-secret")
    assert command.api_key == "sk-secret"
    assert "sk-secret" not in repr(command)
    assert command.spec == ServeSpec("m")


def test_it_puts_other_flags_into_the_extra_arguments():
    command = read_text("vllm serve m --lora-modules 'a b=c' d=e --enable-lora --brand-new 1 2")
    assert command.spec.values == {"enable_lora": True}
    assert command.spec.extra_arguments == "--lora-modules 'a b=c' d=e --brand-new 1 2"
    assert "to_extra" in {note.code for note in command.notes}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--no-enable-prefix-caching", {"enable_prefix_caching": False}),
        ("--disable-prefix-caching", {"enable_prefix_caching": False}),
        ("--enable-chunked-prefill=False", {"enable_chunked_prefill": False}),
        ("--enable-chunked-prefill false", {"enable_chunked_prefill": False}),
        ("--max_model_len=32K", {"max_model_len": 32768}),
        ("--max-model-len -1", {"max_model_len": "auto"}),
        ("--no-enforce-eager", {}),
        ("--max-num-seq 4", {"max_num_seqs": 4}),
        ("--seed -1", {"seed": -1}),
        ("--seed 1 --seed 2", {"seed": 2}),
        ("-q awq", {"quantization": "awq"}),
    ],
)
def test_it_understands_other_spellings(words, expected):
    assert read_text("vllm serve m " + words).spec.values == expected


def test_it_keeps_a_value_it_cannot_read_where_nothing_is_lost():
    command = read_text("vllm serve m --max-num-seqs many")
    assert command.spec.extra_arguments == "--max-num-seqs many"
    assert "not_readable" in {note.code for note in command.notes}


@pytest.mark.parametrize("text", ["", "ls -l", "vllm bench serve", "python -m http.server", "vllm"])
def test_it_says_when_this_is_no_such_command(text):
    command = read_text(text)
    assert not command.understood
    assert command.notes[-1].code == "no_command"


@pytest.mark.parametrize(
    "text",
    [
        "--host 1.2.3.4",
        "--hos 1.2.3.4",
        "--port=1",
        "--api-key x",
        "--api_key x",
        "--api-ke x",
        "--served-model-name x",
        "--model x",
        "--uds /x",
        "--ssl-keyfile /x",
        "--ssl-k /x",
    ],
)
def test_extra_arguments_may_not_set_what_kvadmin_sets(text):
    assert "own_flag" in {note.code for note in read_extra(text).notes}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("--max-num-seqs 4", "double_flag"),
        ("--max_num_seqs=4", "double_flag"),
        ("--max-num-s 4", "double_flag"),
        ("--seed 1", "has_field"),
        ("--help", "ending_flag"),
        ("stray", "stray_word"),
        ("--kv-transfer-config", "value_missing"),
        ("--kv-transfer-config {a:1}", "not_json"),
        ("--hf-token hf_abc", "secret_argument"),
        ("""--kv-transfer-config '{"password": "x"}'""", "secret_argument"),
        ("--disable-log-stats", "no_metrics"),
        ("--enable-lorra", "unknown_flag"),
        ("--chat-template a --chat-template b", "repeated_flag"),
    ],
)
def test_extra_arguments_are_checked(text, code):
    assert code in {note.code for note in read_extra(text, {"max_num_seqs": 8}).notes}


def test_an_unknown_flag_is_answered_with_the_nearest_one():
    (note,) = read_extra("--enable-lorra").notes
    assert note.params["near"] == "--enable-lora"
    assert "Did you mean --enable-lora?" in note.text()


def test_dotted_keys_belong_to_their_flag():
    extra = read_extra("--compilation-config.level 3 --compilation-config.mode=2")
    assert [argument.flag for argument in extra.arguments] == ["--compilation-config"] * 2
    assert extra.words == ("--compilation-config.level", "3", "--compilation-config.mode=2")
    assert extra.notes == ()
