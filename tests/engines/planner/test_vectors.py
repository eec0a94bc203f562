"""Worked examples: bytes per page, pages, requests at once, by version."""

from __future__ import annotations

import json

import pytest

from engines.planner.flags import Card, Flags, settle
from engines.planner.reading import read_model
from engines.planner.rules import GIB, rules_for
from engines.planner.sizing import size
from tests.engines.planner.support import DATA, llama, raw

VECTORS = json.loads((DATA / "kv_vectors.json").read_text())["vectors"]
CARD = Card("NVIDIA H100 80GB HBM3", 80 * GIB)

DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "vocab_size": 129280,
}
LLAMA_70B = llama(hidden_size=8192, intermediate_size=28672, num_attention_heads=64, num_hidden_layers=80)
GEMMA_27B = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_hidden_layers": 62,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "sliding_window": 1024,
    "vocab_size": 262208,
}
CONFIGS = {
    "Qwen3-8B": raw("Qwen3-8B"),
    "Llama-3.3-70B": LLAMA_70B,
    "DeepSeek-V3": DEEPSEEK,
    "DeepSeek-V3.2": DEEPSEEK,
    "gpt-oss-20b": raw("gpt-oss-20b"),
    "Gemma-3-27B": GEMMA_27B,
}


def expected(vector):
    if "by_version" in vector:
        return list(vector["by_version"].items())
    return [("0.25.1", vector), ("0.33.0", vector)]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_it_reckons_as_the_worked_example(vector):
    name = next(one for one in sorted(CONFIGS, key=len, reverse=True) if vector["name"].startswith(one))
    model = read_model(CONFIGS[name])
    given = vector["inputs"]
    for version, figures in expected(vector):
        rules = rules_for(version)
        cache = "fp8" if given["dtype_bytes"] == 1 else "auto"
        flags = Flags(
            max_model_len=given["max_model_len"],
            max_num_batched_tokens=given.get("max_num_batched_tokens", 8192),
            tensor_parallel_size=given["tp"],
            block_size=given.get("block_size", 16),
            kv_cache_dtype="fp8_ds_mla" if "656" in vector["name"] else cache,
        )
        sizing = size(model, settle(flags, model, CARD, rules), CARD, rules)
        pool = sizing.pool([int(given["available_gib"] * GIB)])
        assert sizing.layout.groups[0].cache.page == vector["page_bytes"]
        assert pool.block_bytes == vector["bytes_per_block"]
        assert pool.blocks == vector["num_blocks"]
        assert pool.request_blocks(given["max_model_len"]) == figures["blocks_per_request"]
        assert pool.concurrency(given["max_model_len"]) == pytest.approx(figures["max_concurrency"], abs=6e-5)
        # the examples round the concurrency before they multiply
        assert pool.tokens(given["max_model_len"]) == pytest.approx(figures["kv_cache_size_tokens"], abs=16)
        assert pool.needed(given["max_model_len"]) / GIB == pytest.approx(
            figures["needed_gib_one_request"], abs=6e-3
        )
        if "padding_layers" in vector:
            assert sizing.layout.padding == vector["padding_layers"]
            assert sizing.layout.group_size == vector["group_size"]
