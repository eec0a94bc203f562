"""Each finding about a profile's own values can be mended with one click, and the mend settles it."""

from __future__ import annotations

import pytest

from engines.vllm.validate import Reading, read_spec

GIVEN = {"model": "Qwen/Qwen3-8B", "served_names": ["a"], "gpus": "", "extra_arguments": ""}


def reading(values: dict[str, str], **others) -> Reading:
    return read_spec(**{**GIVEN, "values": values, **others})


@pytest.mark.parametrize(
    ("values", "others", "code", "sets"),
    [
        ({"max_num_seqs": "64 or so"}, {}, "not_readable", {"max_num_seqs": "64"}),
        ({"gpu_memory_utilization": "0,9"}, {}, "not_readable", {"gpu_memory_utilization": "0.9"}),
        ({"kv_cache_dtype": "fp-8"}, {}, "not_a_choice", {"kv_cache_dtype": "fp8"}),
        ({"hf_overrides": "{x"}, {}, "not_json", {"hf_overrides": ""}),
        ({"max_num_seqs": "0"}, {}, "too_small", {"max_num_seqs": "1"}),
        ({"gpu_memory_utilization": "7"}, {}, "too_large", {"gpu_memory_utilization": "1"}),
        ({"gpu_memory_utilization": "0.97"}, {}, "share_high", {"gpu_memory_utilization": "0.90"}),
        (
            {"enable_chunked_prefill": "off", "max_model_len": "4096", "max_num_batched_tokens": "2048"},
            {},
            "batch_below_length",
            {"max_num_batched_tokens": "4096"},
        ),
        (
            {"max_num_batched_tokens": "32", "max_num_seqs": "64"},
            {},
            "batch_below_requests",
            {"max_num_batched_tokens": "64"},
        ),
        ({"enable_auto_tool_choice": "on"}, {}, "parser_missing", {"tool_call_parser": "hermes"}),
        ({"tool_call_parser": "hermes"}, {}, "parser_unused", {"enable_auto_tool_choice": "on"}),
        ({"max_loras": "2"}, {}, "loras_unused", {"enable_lora": "on"}),
        ({"tensor_parallel_size": "4"}, {"gpus": "0,1"}, "gpus_too_few", {"tensor_parallel_size": "2"}),
        ({}, {"gpus": "0,1"}, "gpus_idle", {"tensor_parallel_size": "2"}),
        ({}, {"gpus": "0,0"}, "gpu_twice", {"gpus": "0"}),
        ({}, {"gpus": "first"}, "gpus_unreadable", {"gpus": ""}),
        ({}, {"served_names": ["my model"]}, "served_name_unreadable", {"served_names": "my-model"}),
        ({}, {"served_names": ["a", "a"]}, "served_name_twice", {"served_names": "a"}),
        (
            {},
            {"model": "https://huggingface.co/Qwen/Qwen3-8B/tree/main"},
            "model_address",
            {"model": "Qwen/Qwen3-8B"},
        ),
        (
            {"max_num_seqs": "8"},
            {"extra_arguments": "--max-num-seqs 16 --api-server-count 2"},
            "double_flag",
            {"max_num_seqs": "16", "extra_arguments": "--api-server-count 2"},
        ),
        (
            {},
            {"extra_arguments": "--api-server-count 2 --max-num-seqs 16"},
            "has_field",
            {"max_num_seqs": "16", "extra_arguments": "--api-server-count 2"},
        ),
        (
            {},
            {"extra_arguments": "--api-server-cuont 2"},
            "unknown_flag",
            {"extra_arguments": "--api-server-count 2"},
        ),
        (
            {},
            {"extra_arguments": "--api-server-count 2\n  --port 9000 # as before"},
            "own_flag",
            {"extra_arguments": "--api-server-count 2"},
        ),
    ],
)
def test_the_first_mend_settles_it(values, others, code, sets):
    note = next(note for note in reading(values, **others).notes if note.code == code)
    first = note.mends[0]
    assert dict(first.sets) == sets
    assert first.text()
    values = {**values, **{key: text for key, text in sets.items() if key not in GIVEN}}
    others = {**others, **{key: text for key, text in sets.items() if key in GIVEN}}
    if isinstance(others.get("served_names"), str):
        others["served_names"] = others["served_names"].split(", ")
    assert code not in {note.code for note in reading(values, **others).notes}
