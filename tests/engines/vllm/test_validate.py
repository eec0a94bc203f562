"""Each mistake in a profile is answered by a sentence at the field that it belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from engines.vllm import catalog
from engines.vllm.fields import Kind, fields, groups
from engines.vllm.notes import Severity
from engines.vllm.validate import Reading, read_spec

GOOD: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "served_names": ["qwen3-8b-v1"]}


def read(**changes: Any) -> Reading:
    return read_spec(**{**GOOD, **changes})


def found(reading: Reading) -> dict[str, tuple[str, Severity]]:
    return {note.code: (note.field, note.severity) for note in reading.notes}


def test_a_plain_profile_has_nothing_to_say():
    assert read().notes == ()


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"model": " "}, "model_missing", "model"),
        ({"model": "-x"}, "model_unreadable", "model"),
        ({"model": "a\nb"}, "model_unreadable", "model"),
        ({"model": "~/models/x"}, "model_tilde", "model"),
        ({"model": "https://hub.example/Qwen/Qwen3-8B"}, "model_address", "model"),
        ({"served_names": ["a b"]}, "served_name_unreadable", "served_names"),
        ({"served_names": ["-a"]}, "served_name_unreadable", "served_names"),
        ({"served_names": ["a", "a"]}, "served_name_twice", "served_names"),
        ({"values": {"max_model_lenn": 1}}, "unknown_field", "max_model_lenn"),
        ({"values": {"max_model_len": "many"}}, "not_readable", "max_model_len"),
        ({"values": {"max_model_len": 0}}, "too_small", "max_model_len"),
        ({"values": {"max_model_len": True}}, "not_readable", "max_model_len"),
        ({"values": {"max_num_seqs": 1.5}}, "not_readable", "max_num_seqs"),
        ({"values": {"gpu_memory_utilization": "90%"}}, "not_readable", "gpu_memory_utilization"),
        ({"values": {"gpu_memory_utilization": "nan"}}, "not_readable", "gpu_memory_utilization"),
        ({"values": {"gpu_memory_utilization": 0}}, "too_small", "gpu_memory_utilization"),
        ({"values": {"gpu_memory_utilization": 90}}, "too_large", "gpu_memory_utilization"),
        ({"values": {"dtype": "fp16"}}, "not_a_choice", "dtype"),
        ({"values": {"enable_prefix_caching": "maybe"}}, "not_readable", "enable_prefix_caching"),
        ({"values": {"hf_overrides": "{a: 1}"}}, "not_json", "hf_overrides"),
        ({"values": {"hf_overrides": '"text"'}}, "not_json_object", "hf_overrides"),
        ({"values": {"hf_overrides": '{"api_key": "x"}'}}, "secret_argument", "hf_overrides"),
        ({"values": {"chat_template": "a\x07b"}}, "control_character", "chat_template"),
        ({"values": {"enable_auto_tool_choice": True}}, "parser_missing", "tool_call_parser"),
        (
            {
                "values": {
                    "enable_chunked_prefill": "off",
                    "max_model_len": "32K",
                    "max_num_batched_tokens": "8k",
                }
            },
            "batch_below_length",
            "max_num_batched_tokens",
        ),
        (
            {"values": {"max_num_seqs": 64, "max_num_batched_tokens": 32}},
            "batch_below_requests",
            "max_num_batched_tokens",
        ),
        ({"gpus": "x"}, "gpus_unreadable", "gpus"),
        ({"gpus": "0,0"}, "gpu_twice", "gpus"),
        ({"gpus": "0", "values": {"tensor_parallel_size": 2}}, "gpus_too_few", "gpus"),
        ({"environment": {"1A": "x"}}, "variable_name", "environment"),
        ({"environment": {"VLLM_API_KEY": "x"}}, "variable_reserved", "environment"),
        ({"environment": {"KVADMIN_START": "x"}}, "variable_reserved", "environment"),
        ({"environment": {"KVADMIN_ANYTHING": "x"}}, "variable_reserved", "environment"),
        ({"secrets": {"SPT_NOENV": "x"}}, "variable_reserved", "environment"),
        ({"environment": {"A": "x\ny"}}, "variable_value", "environment"),
        ({"environment": {"A": "x"}, "secrets": {"A": "y"}}, "variable_twice", "environment"),
        ({"environment": {"HF_TOKEN": "x"}}, "variable_open_secret", "environment"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}, "gpus": "0"}, "variable_gpus", "environment"),
        ({"extra_arguments": "--a 'b"}, "open_quote", "extra_arguments"),
        ({"extra_arguments": "--port 1"}, "own_flag", "extra_arguments"),
    ],
)
def test_a_mistake_is_an_error_at_its_field(changes, code, field):
    assert found(read(**changes))[code] == (field, Severity.ERROR)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"values": {"gpu_memory_utilization": 0.97}}, "share_high"),
        ({"values": {"gpu_memory_utilization": 0.9, "kv_cache_memory_bytes": "4G"}}, "share_ignored"),
        ({"values": {"tool_call_parser": "hermes"}}, "parser_unused"),
        ({"values": {"max_loras": 2}}, "loras_unused"),
        ({"values": {"trust_remote_code": True}}, "code_unpinned"),
        ({"gpus": "0-3", "values": {"tensor_parallel_size": 2}}, "gpus_idle"),
        ({"environment": {"LD_PRELOAD": "/x.so"}}, "variable_doubtful"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, "variable_doubtful"),
        ({"extra_arguments": "--a $B"}, "literal_dollar"),
    ],
)
def test_what_is_doubtful_is_a_warning_and_can_be_saved(changes, code):
    reading = read(**changes)
    assert found(reading)[code][1] is Severity.WARNING
    assert reading.errors == []


@pytest.mark.parametrize(
    ("served", "code"), [(["Qwen3 8B".replace(" ", "_")], "served_name_pattern"), ([], "served_name_missing")]
)
def test_served_names_get_a_hint(served, code):
    assert found(read(served_names=served))[code][1] is Severity.INFO


def test_enough_gpus_for_all_kinds_of_parallel():
    values = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "data_parallel_size": 2}
    assert read(gpus="0-7", values=values).notes == ()


def test_values_keep_the_order_of_the_form_and_lose_what_is_default():
    reading = read(values={"seed": "7", "max_model_len": "32K", "enforce_eager": "off", "dtype": ""})
    assert list(reading.spec.values.items()) == [("max_model_len", 32768), ("seed", 7)]


def test_auto_is_a_length():
    assert read(values={"max_model_len": "AUTO"}).spec.values == {"max_model_len": "auto"}


def test_every_sentence_fills_in():
    readings = [
        read(model=""),
        read(values={"max_model_len": "x", "gpu_memory_utilization": 2, "max_num_seqs": 0}),
        read(environment={"LD_PRELOAD": "x", "1": "y"}),
    ]
    for note in (note for reading in readings for note in reading.notes):
        assert "%(" not in note.text()
        assert note.text().endswith((".", "»", "”")), note


@pytest.mark.parametrize("field", fields().values(), ids=lambda field: field.key)
def test_every_field_is_a_flag_that_some_release_has_and_explains_itself(field):
    facts = catalog.all_flags()[field.flag]
    assert facts.takes_value == (field.kind is not Kind.BOOL)
    assert field.group in {group.key for group in groups()}
    assert field.label[0].isupper()
    assert field.help.endswith(".")
    if field.kind is Kind.CHOICE:
        assert set(map(str, facts.known)) <= set(field.choices)
    if field.can_turn_off:
        assert field.negation in facts.all_negations or facts.flag == "--enable-chunked-prefill"


def test_the_playbooks_parameters_are_all_fields():
    assert {
        "max_model_len",
        "gpu_memory_utilization",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "max_num_batched_tokens",
        "max_num_seqs",
        "block_size",
        "swap_space",
    } <= set(fields())
    assert fields()["swap_space"].last_seen == "0.17.1"
    assert fields()["max_model_len"].last_seen is None
    assert fields()["kv_cache_memory_bytes"].first_seen == "0.10.2"
