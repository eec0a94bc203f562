"""Public models of each kind of attention: what they keep of a token, by hand from their config.json."""

from __future__ import annotations

from collections import Counter

import pytest

from engines.planner.caches import Kind
from engines.planner.estimate import estimate
from engines.planner.flags import Flags, settle
from engines.planner.known import known_config, known_names
from engines.planner.layers import state_bytes
from engines.planner.reading import read_model
from engines.planner.rules import rules_for
from engines.planner.sizing import size
from tests.engines.planner.support import H200

RULES = rules_for("0.25.1")


def dense(kind: str, architecture: str, layers: int, heads: int, kv_heads: int, head: int, **more):
    return {
        "architectures": [architecture],
        "model_type": kind,
        "hidden_size": heads * head,
        "intermediate_size": 4 * heads * head,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
        **more,
    }


#: name, config, bytes of one token in a 16-bit cache over all layers
WHOLE = [
    # multi-head: 2 x layers x heads x head x 2 bytes
    ("Llama-2-7B", dense("llama", "LlamaForCausalLM", 32, 32, 32, 128), 524_288),
    ("Llama-2-13B", dense("llama", "LlamaForCausalLM", 40, 40, 40, 128), 819_200),
    ("OLMo-2-7B", dense("olmo2", "Olmo2ForCausalLM", 32, 32, 32, 128), 524_288),
    # grouped queries
    ("Llama-2-70B", dense("llama", "LlamaForCausalLM", 80, 64, 8, 128), 327_680),
    ("Llama-3.1-8B", dense("llama", "LlamaForCausalLM", 32, 32, 8, 128), 131_072),
    ("Llama-3.1-405B", dense("llama", "LlamaForCausalLM", 126, 128, 8, 128), 516_096),
    ("Llama-3.2-1B", dense("llama", "LlamaForCausalLM", 16, 32, 8, 64), 32_768),
    ("Qwen2.5-7B", dense("qwen2", "Qwen2ForCausalLM", 28, 28, 4, 128), 57_344),
    ("Qwen2.5-72B", dense("qwen2", "Qwen2ForCausalLM", 80, 64, 8, 128), 327_680),
    ("Qwen3-0.6B", known_config("Qwen/Qwen3-0.6B"), 114_688),
    ("Qwen3-14B", known_config("Qwen/Qwen3-14B"), 163_840),
    ("Qwen3-30B-A3B", known_config("Qwen/Qwen3-30B-A3B"), 98_304),
    ("Mixtral-8x7B", dense("mixtral", "MixtralForCausalLM", 32, 32, 8, 128), 131_072),
    ("Phi-4", dense("phi3", "Phi3ForCausalLM", 40, 40, 10, 128), 204_800),
    ("GLM-4-9B-0414", known_config("zai-org/GLM-4-9B-0414"), 40_960),
    # one head for all queries
    ("Falcon-7B", dense("falcon", "FalconForCausalLM", 32, 71, 71, 64, multi_query=True), 8_192),
    ("StarCoder", dense("gpt_bigcode", "GPTBigCodeForCausalLM", 40, 48, 48, 128, multi_query=True), 20_480),
    ("Gemma-2B", dense("gemma", "GemmaForCausalLM", 18, 8, 1, 256, head_dim=256), 18_432),
]


@pytest.mark.parametrize(("name", "config", "expected"), WHOLE, ids=[name for name, *_ in WHOLE])
def test_every_layer_keeps_every_token(name, config, expected):
    model = read_model(config)
    sizing = size(model, settle(Flags(max_model_len=4096), model, H200, RULES), H200, RULES)
    assert {layer.kind for layer in model.layers} == {Kind.FULL}
    assert sizing.token_bytes == expected


def latent(architecture: str, kind: str, layers: int, heads: int, hidden: int, **more):
    return dense(kind, architecture, layers, heads, heads, 128) | {
        "hidden_size": hidden,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        **more,
    }


LATENT = [
    ("DeepSeek-V2", latent("DeepseekV2ForCausalLM", "deepseek_v2", 60, 128, 5120), 69_120),
    ("DeepSeek-V2-Lite", latent("DeepseekV2ForCausalLM", "deepseek_v2", 27, 16, 2048), 31_104),
    ("DeepSeek-V3", latent("DeepseekV3ForCausalLM", "deepseek_v3", 61, 128, 7168), 70_272),
    ("DeepSeek-R1", latent("DeepseekV3ForCausalLM", "deepseek_v3", 61, 128, 7168), 70_272),
    ("Kimi-K2", latent("DeepseekV3ForCausalLM", "kimi_k2", 61, 64, 7168), 70_272),
    # 132 bytes more for the indexer in each layer
    (
        "DeepSeek-V3.2",
        latent("DeepseekV32ForCausalLM", "deepseek_v32", 61, 128, 7168, index_head_dim=128, index_n_heads=64),
        61 * (1152 + 132),
    ),
]


@pytest.mark.parametrize(("name", "config", "expected"), LATENT, ids=[name for name, *_ in LATENT])
def test_a_latent_layer_keeps_one_vector_on_every_card(name, config, expected):
    model = read_model(config)
    for cards in (1, 8):
        flags = Flags(max_model_len=4096, tensor_parallel_size=cards)
        sizing = size(model, settle(flags, model, H200, RULES), H200, RULES)
        assert sizing.token_bytes == expected


WINDOWS = [
    # all layers with a window, without a list of kinds
    ("Mistral-7B-v0.1", known_config("mistralai/Mistral-7B-v0.1"), {Kind.SLIDING: 32}),
    (
        "Qwen2-7B",
        dense("qwen2", "Qwen2ForCausalLM", 28, 28, 4, 128, sliding_window=131072, use_sliding_window=False),
        {Kind.FULL: 28},
    ),
    (
        "Mistral-7B-v0.3",
        dense("mistral", "MistralForCausalLM", 32, 32, 8, 128, sliding_window=None),
        {Kind.FULL: 32},
    ),
    # mixed
    (
        "Gemma-2-9B",
        dense("gemma2", "Gemma2ForCausalLM", 42, 16, 8, 256, head_dim=256, sliding_window=4096),
        {Kind.SLIDING: 21, Kind.FULL: 21},
    ),
    (
        "Gemma-3-27B",
        dense("gemma3_text", "Gemma3ForCausalLM", 62, 32, 16, 128, head_dim=128, sliding_window=1024),
        {Kind.SLIDING: 52, Kind.FULL: 10},
    ),
    (
        "Gemma-3-12B",
        dense("gemma3_text", "Gemma3ForCausalLM", 48, 16, 8, 256, head_dim=256, sliding_window=1024),
        {Kind.SLIDING: 40, Kind.FULL: 8},
    ),
    (
        "Command-R7B",
        dense("cohere2", "Cohere2ForCausalLM", 32, 32, 8, 128, sliding_window=4096, sliding_window_pattern=4),
        {Kind.SLIDING: 24, Kind.FULL: 8},
    ),
    ("gpt-oss-20b", known_config("openai/gpt-oss-20b"), {Kind.SLIDING: 12, Kind.FULL: 12}),
    (
        "gpt-oss-120b",
        {
            **known_config("openai/gpt-oss-20b"),
            "num_hidden_layers": 36,
            "layer_types": None,
            "num_local_experts": 128,
        },
        {Kind.SLIDING: 18, Kind.FULL: 18},
    ),
    (
        "Llama-4-Scout",
        {
            "architectures": ["Llama4ForConditionalGeneration"],
            "model_type": "llama4",
            "text_config": dense("llama4_text", "", 48, 40, 8, 128, attention_chunk_size=8192),
        },
        {Kind.CHUNKED: 36, Kind.FULL: 12},
    ),
    (
        "OLMo-3",
        dense(
            "olmo3",
            "Olmo3ForCausalLM",
            8,
            32,
            32,
            128,
            sliding_window=4096,
            layer_types=["sliding_attention"] * 3
            + ["full_attention"]
            + ["sliding_attention"] * 3
            + ["full_attention"],
        ),
        {Kind.SLIDING: 6, Kind.FULL: 2},
    ),
]


@pytest.mark.parametrize(("name", "config", "expected"), WINDOWS, ids=[name for name, *_ in WINDOWS])
def test_windows_are_where_transformers_puts_them(name, config, expected):
    assert Counter(layer.kind for layer in read_model(config).layers) == expected


def mamba(kind: str, architecture: str, layers: int, **more):
    return dense(kind, architecture, layers, 32, 8, 128, **more)


#: name, config, attention layers, state layers, bytes of one layer's state in 16 bits
STATES = [
    (
        "Qwen3-Next-80B",
        dense(
            "qwen3_next",
            "Qwen3NextForCausalLM",
            48,
            16,
            2,
            256,
            head_dim=256,
            linear_num_value_heads=32,
            linear_num_key_heads=16,
        ),
        12,
        36,
        1_097_728,
    ),
    ("Jamba-Mini", mamba("jamba", "JambaForCausalLM", 32), 4, 28, 8192 * 3 * 2 + 8192 * 16 * 2),
    (
        "Bamba-9B",
        mamba(
            "bamba",
            "BambaForCausalLM",
            32,
            attn_layer_indices=[9, 18, 27],
            mamba_n_heads=128,
            mamba_d_state=128,
            mamba_n_groups=1,
        ),
        3,
        29,
        (8192 + 256) * 3 * 2 + 128 * 64 * 128 * 2,
    ),
    (
        "LFM2-1.2B",
        mamba(
            "lfm2",
            "Lfm2ForCausalLM",
            16,
            layer_types=["conv", "conv", "full_attention"] * 2 + ["conv", "full_attention"] * 5,
        ),
        7,
        9,
        4096 * 2 * 2,
    ),
    (
        "Mamba-2.8B",
        {
            "architectures": ["MambaForCausalLM"],
            "model_type": "mamba",
            "hidden_size": 2560,
            "intermediate_size": 5120,
            "num_hidden_layers": 64,
            "state_size": 16,
            "conv_kernel": 4,
            "vocab_size": 50280,
        },
        0,
        64,
        5120 * 3 * 2 + 5120 * 16 * 2,
    ),
    (
        "Falcon-Mamba-7B",
        {
            "architectures": ["FalconMambaForCausalLM"],
            "model_type": "falcon_mamba",
            "hidden_size": 4096,
            "intermediate_size": 8192,
            "num_hidden_layers": 64,
            "state_size": 16,
            "conv_kernel": 4,
            "vocab_size": 65024,
        },
        0,
        64,
        8192 * 3 * 2 + 8192 * 16 * 2,
    ),
    (
        "Nemotron-H",
        mamba(
            "nemotron_h",
            "NemotronHForCausalLM",
            6,
            hybrid_override_pattern="M-M*-M",
            mamba_num_heads=128,
            mamba_head_dim=64,
            ssm_state_size=128,
            n_groups=8,
        ),
        1,
        3,
        (8192 + 2048) * 3 * 2 + 128 * 64 * 128 * 4,
    ),
]


@pytest.mark.parametrize(
    ("name", "config", "attention", "states", "expected"), STATES, ids=[name for name, *_ in STATES]
)
def test_a_state_is_kept_whole_whatever_the_length(name, config, attention, states, expected):
    model = read_model(config)
    assert sum(layer.kind is not Kind.NONE for layer in model.layers) == attention
    assert sum(layer.has_state for layer in model.layers) == states
    assert state_bytes(model.state, 2, 1) == expected
    found = estimate(model, Flags(max_model_len=8192), H200, "0.25.1")
    assert found.starts
    groups = [group for group in found.sizing.layout.groups if group.cache.kind is Kind.STATE]
    load = found.sizing.load
    assert all(group.pages(1, load) == group.pages(8192, load) for group in groups)
    # every page of a pool has one size
    assert len({group.cache.page for group in found.sizing.layout.groups}) == 1


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
def test_an_encoder_keeps_nothing(kind):
    config = dense(kind, "BertModel", 12, 12, 12, 64)
    found = estimate(read_model(config), Flags(), H200, "0.25.1")
    assert found.starts and found.pool.layout.groups == () and found.concurrency == 0


@pytest.mark.parametrize("name", known_names())
def test_the_table_holds_models_that_are_known_in_every_layer(name):
    model = read_model(known_config(name))
    assert model.known and model.kinds_known and not model.notes
