"""Which architecture is built of which parts. Data only.

Source: vLLM's model_executor/models/*.py and transformers' configuration classes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engines.planner.model import Traits

_LLAMA = Traits()
_GEMMA = Traits("gemma", norms=2, tied=True, fused_norm_copies=True)
_GPT2 = Traits(
    "gpt2",
    gated=False,
    norm_bias=True,
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    tied=True,
    learned_positions=True,
)
_OPT = replace(_GPT2, family="opt")

#: by the first entry of "architectures"
TRAITS: dict[str, Traits] = {
    "LlamaForCausalLM": _LLAMA,
    "LLaMAForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "AquilaForCausalLM": _LLAMA,
    "YiForCausalLM": _LLAMA,
    "XverseForCausalLM": _LLAMA,
    "SmolLM3ForCausalLM": _LLAMA,
    "SeedOssForCausalLM": _LLAMA,
    "GraniteForCausalLM": _LLAMA,
    "InternLMForCausalLM": Traits(qkv_bias=True, out_bias=True),
    "InternLM2ForCausalLM": _LLAMA,
    "InternLM3ForCausalLM": _LLAMA,
    "BaichuanForCausalLM": _LLAMA,
    "MiniCPMForCausalLM": Traits(tied=True),
    "Phi3ForCausalLM": _LLAMA,
    "PhiForCausalLM": Traits(
        "phi",
        gated=False,
        norms=1,
        norm_bias=True,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        lm_head_bias=True,
    ),
    "Qwen2ForCausalLM": Traits(qkv_bias=True),
    "Qwen3ForCausalLM": Traits(qk_norm="head"),
    "Olmo2ForCausalLM": Traits(qk_norm="full"),
    "Olmo3ForCausalLM": Traits(qk_norm="full"),
    "OlmoForCausalLM": Traits(norms=0),
    "GlmForCausalLM": _LLAMA,
    "Glm4ForCausalLM": Traits(norms=4),
    "Exaone4ForCausalLM": Traits(qk_norm="head"),
    "GemmaForCausalLM": _GEMMA,
    "Gemma2ForCausalLM": Traits("gemma", norms=4, tied=True, fused_norm_copies=True),
    "Gemma3ForCausalLM": Traits("gemma", norms=4, tied=True, qk_norm="head", fused_norm_copies=True),
    "Gemma3ForConditionalGeneration": Traits(
        "gemma", norms=4, tied=True, qk_norm="head", fused_norm_copies=True
    ),
    "CohereForCausalLM": Traits(norms=1, tied=True),
    "Cohere2ForCausalLM": Traits(norms=1, tied=True),
    "Starcoder2ForCausalLM": Traits(
        gated=False, norm_bias=True, qkv_bias=True, out_bias=True, mlp_bias=True, tied=True
    ),
    "StableLmForCausalLM": Traits(norm_bias=True),
    "FalconForCausalLM": Traits("falcon", gated=False, norms=1, norm_bias=True, tied=True),
    "GPT2LMHeadModel": _GPT2,
    "OPTForCausalLM": _OPT,
    "GPTBigCodeForCausalLM": _GPT2,
    "GPTNeoXForCausalLM": Traits(
        "neox", gated=False, norm_bias=True, qkv_bias=True, out_bias=True, mlp_bias=True
    ),
    # experts
    "MixtralForCausalLM": Traits("moe"),
    "Qwen2MoeForCausalLM": Traits("moe", qkv_bias=True),
    "Qwen3MoeForCausalLM": Traits("moe", qk_norm="head"),
    "OlmoeForCausalLM": Traits("moe", qk_norm="full"),
    "GraniteMoeForCausalLM": Traits("moe"),
    "PhiMoEForCausalLM": Traits("moe", norm_bias=True, lm_head_bias=True),
    "DbrxForCausalLM": Traits("moe", norm_bias=False),
    "Glm4MoeForCausalLM": Traits("moe"),
    "MiniMaxM2ForCausalLM": Traits("moe", qk_norm="full"),
    "Ernie4_5ForCausalLM": _LLAMA,
    "Ernie4_5_MoeForCausalLM": Traits("moe"),
    "GptOssForCausalLM": Traits("gpt-oss", sinks=True, qkv_bias=True, out_bias=True),
    "Llama4ForConditionalGeneration": Traits("llama4"),
    "Llama4ForCausalLM": Traits("llama4"),
    # latent attention
    "DeepseekV2ForCausalLM": Traits("deepseek"),
    "DeepseekV3ForCausalLM": Traits("deepseek"),
    "DeepseekV32ForCausalLM": Traits("deepseek"),
    "GlmMoeDsaForCausalLM": Traits("deepseek"),
    "Glm4MoeLiteForCausalLM": Traits("deepseek"),
    "KimiLinearForCausalLM": Traits("kimi-linear"),
    "MiniCPM3ForCausalLM": Traits("minicpm3", tied=True),
    # state layers
    "MambaForCausalLM": Traits("mamba", norms=1, tied=True),
    "FalconMambaForCausalLM": Traits("mamba", norms=1, tied=True),
    "Mamba2ForCausalLM": Traits("mamba", norms=1, tied=True),
    "Qwen3NextForCausalLM": Traits("qwen3-next", qk_norm="head", gated_output=True, fused_norm_copies=True),
    "Qwen3_5ForCausalLM": Traits("qwen3-next", qk_norm="head", gated_output=True, fused_norm_copies=True),
    "Qwen3_5ForConditionalGeneration": Traits(
        "qwen3-next", qk_norm="head", gated_output=True, fused_norm_copies=True
    ),
    "Qwen3_5MoeForConditionalGeneration": Traits(
        "qwen3-next", qk_norm="head", gated_output=True, fused_norm_copies=True
    ),
    "JambaForCausalLM": Traits("jamba"),
    "BambaForCausalLM": Traits("bamba"),
    "GraniteMoeHybridForCausalLM": Traits("granite-hybrid"),
    "NemotronHForCausalLM": Traits("nemotron-h", norms=1, gated=False),
    "FalconH1ForCausalLM": Traits("falcon-h1"),
    "Zamba2ForCausalLM": Traits("zamba2"),
    "Lfm2ForCausalLM": Traits("lfm2", qk_norm="head", tied=True),
    "MiniMaxText01ForCausalLM": Traits("minimax"),
    "MiniMaxM1ForCausalLM": Traits("minimax"),
    # text models with eyes and ears
    "Qwen2VLForConditionalGeneration": Traits(qkv_bias=True),
    "Qwen2_5_VLForConditionalGeneration": Traits(qkv_bias=True),
    "Qwen3VLForConditionalGeneration": Traits(qk_norm="head"),
    "Qwen3VLMoeForConditionalGeneration": Traits("moe", qk_norm="head"),
    "Mistral3ForConditionalGeneration": _LLAMA,
    "PixtralForConditionalGeneration": _LLAMA,
    "LlavaForConditionalGeneration": _LLAMA,
    "LlavaNextForConditionalGeneration": _LLAMA,
    "MllamaForConditionalGeneration": Traits("mllama"),
    "InternVLChatModel": _LLAMA,
    "InternVLForConditionalGeneration": Traits(qkv_bias=True),
    # encoder only, and encoder with decoder
    "BertModel": Traits("bert"),
    "BertForSequenceClassification": Traits("bert"),
    "RobertaModel": Traits("bert"),
    "XLMRobertaModel": Traits("bert"),
    "XLMRobertaForSequenceClassification": Traits("bert"),
    "RobertaForSequenceClassification": Traits("bert"),
    "ModernBertModel": Traits("bert"),
    "NomicBertModel": Traits("bert"),
    "GteModel": Traits("bert"),
    "WhisperForConditionalGeneration": Traits("whisper", gated=False, norm_bias=True, tied=True),
}

#: families whose weights are not built tensor by tensor here, only bounded
ROUGH_WEIGHTS = frozenset(
    {"bert", "whisper", "mllama", "zamba2", "minicpm3", "falcon-h1", "minimax", "jamba"}
)

#: the text part's architecture where "architectures" names a wrapper, by the text part's model_type
TEXT_TRAITS: dict[str, Traits] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "ministral3": _LLAMA,
    "qwen2": Traits(qkv_bias=True),
    "qwen2_5_vl_text": Traits(qkv_bias=True),
    "qwen2_vl_text": Traits(qkv_bias=True),
    "qwen3": Traits(qk_norm="head"),
    "qwen3_vl_text": Traits(qk_norm="head"),
    "qwen3_moe": Traits("moe", qk_norm="head"),
    "qwen3_vl_moe_text": Traits("moe", qk_norm="head"),
    "gemma2": TRAITS["Gemma2ForCausalLM"],
    "gemma3_text": TRAITS["Gemma3ForCausalLM"],
    "phi3": _LLAMA,
    "deepseek_v2": Traits("deepseek"),
    "deepseek_v3": Traits("deepseek"),
}

#: what transformers fills in where a config.json is silent, by the text part's model_type
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"max_position_embeddings": 2048, "vocab_size": 32000},
    "mistral": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2": {"max_window_layers": 28, "use_sliding_window": False},
    "qwen2_moe": {"max_window_layers": 28, "use_sliding_window": False, "norm_topk_prob": False},
    "qwen3": {"head_dim": 128, "max_window_layers": 28, "use_sliding_window": False},
    "qwen3_moe": {"max_window_layers": 28, "use_sliding_window": False},
    "gemma": {"head_dim": 256, "tie_word_embeddings": True, "max_position_embeddings": 8192},
    "gemma2": {
        "head_dim": 256,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
        "max_position_embeddings": 8192,
    },
    "gemma3_text": {
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
    },
    "gemma3n_text": {
        "vocab_size": 262400,
        "hidden_size": 2048,
        "num_hidden_layers": 35,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "max_position_embeddings": 32768,
        "sliding_window": 512,
        "num_kv_shared_layers": 15,
        "tie_word_embeddings": True,
    },
    "cohere": {"tie_word_embeddings": True},
    "cohere2": {"tie_word_embeddings": True, "sliding_window": 4096, "sliding_window_pattern": 4},
    "starcoder2": {"tie_word_embeddings": True},
    "gpt_oss": {"head_dim": 64, "sliding_window": 128, "tie_word_embeddings": False},
    "falcon": {"tie_word_embeddings": True},
    "gpt2": {"tie_word_embeddings": True},
    "gpt_bigcode": {"tie_word_embeddings": True},
    "opt": {"tie_word_embeddings": True},
    "mamba": {"tie_word_embeddings": True, "state_size": 16, "conv_kernel": 4, "expand": 2},
    "mamba2": {
        "tie_word_embeddings": False,
        "state_size": 128,
        "conv_kernel": 4,
        "expand": 2,
        "n_groups": 8,
        "head_dim": 64,
        "num_heads": 128,
    },
    "falcon_mamba": {"tie_word_embeddings": True, "state_size": 16, "conv_kernel": 4, "expand": 2},
    "qwen3_next": {
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "head_dim": 256,
        "decoder_sparse_step": 1,
    },
    "llama4_text": {
        "attention_chunk_size": 8192,
        "no_rope_layer_interval": 4,
        "interleave_moe_layer_step": 1,
        "head_dim": 128,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 16384,
    },
    "deepseek_v2": {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    "deepseek_v3": {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    "whisper": {"max_source_positions": 1500, "max_target_positions": 448},
    "jamba": {
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
    "bamba": {
        "mamba_n_heads": 128,
        "mamba_n_groups": 1,
        "mamba_d_state": 256,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
    "nemotron_h": {"mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8},
    "lfm2": {"conv_L_cache": 3, "tie_word_embeddings": True},
}
for _same, _as in (
    ("phi3", "llama"),
    ("qwen3_5_text", "qwen3_next"),
    ("qwen3_5_moe_text", "qwen3_next"),
    ("deepseek_v32", "deepseek_v3"),
    ("kimi_k2", "deepseek_v3"),
    ("qwen2_5_vl_text", "qwen2"),
    ("qwen2_vl_text", "qwen2"),
):
    DEFAULTS.setdefault(_same, DEFAULTS[_as])

#: model types that vLLM runs with latent attention when kv_lora_rank is set (is_deepseek_mla)
LATENT_TYPES = frozenset(
    {
        "AXK1",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "deepseek_v4",
        "deepseek_mtp",
        "glm_moe_dsa",
        "glm4_moe_lite",
        "glm4_moe_lite_mtp",
        "kimi_k2",
        "kimi_linear",
        "longcat_flash",
        "pangu_ultra_moe",
        "pangu_ultra_moe_mtp",
        "bailing_hybrid",
        "bailing_hybrid_mtp",
    }
)

#: where a multimodal config keeps its text part, in the order transformers looks
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder", "text_encoder")
