"""From a config.json to a Model: what it says, what transformers would fill in, and what stays unknown.

Source: transformers' configuration classes; vLLM's transformers_utils/model_arch_config_convertor.py and
the get_kv_cache_spec / get_mamba_state_shape_from_config of its models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines.planner import families
from engines.planner.caches import VALUE_BYTES
from engines.planner.fields import Fields, parse, refuse
from engines.planner.layers import layers_of, state_of
from engines.planner.model import Experts, Latent, Model, Traits
from engines.planner.quantisation import quant_of
from engines.planner.towers import tower_parameters
from engines.vllm.notes import Note, Unreadable, error, gettext_noop, warning

_EMBEDDING_WORDS = ("ForSequenceClassification", "ForTokenClassification", "RewardModel", "EmbeddingModel")
_TOWERS = ("vision_config", "audio_config", "vision_tower", "vit_config", "speech_config")


def read_model(
    source: str | bytes | Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    dtype: str = "auto",
    quantization: str = "",
) -> Model:
    """The model of a config.json. Raises Unreadable with a sentence.

    ``overrides`` is --hf-overrides; ``dtype`` and ``quantization`` are the flags of those names.
    """
    data = parse(source)
    if overrides:
        data = {**data, **{key: value for key, value in overrides.items() if isinstance(key, str)}}
    try:
        return _model(data, dtype, quantization)
    except RecursionError:
        raise refuse(
            "config_deep", gettext_noop("This config.json nests too deeply to be a model's.")
        ) from None


def text_part(data: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The text decoder's object and its name ("" for the whole), with transformers' defaults under it."""
    for name in families.TEXT_PARTS:
        inner = data.get(name)
        if isinstance(inner, dict) and inner:
            nested = next(
                (inner[one] for one in families.TEXT_PARTS if isinstance(inner.get(one), dict)), None
            )
            chosen = nested if nested else inner
            model_type = str(chosen.get("model_type") or data.get("model_type") or "")
            return {**families.DEFAULTS.get(model_type, {}), **chosen}, name
        if inner is not None and name == "text_config" and not isinstance(inner, dict):
            raise refuse(
                "config_inner",
                gettext_noop("“%(name)s” is %(value)s; it must be an object."),
                name=name,
                value=str(inner)[:60],
            )
    model_type = data.get("model_type")
    defaults = families.DEFAULTS.get(model_type, {}) if isinstance(model_type, str) else {}
    return {**defaults, **data}, ""


def _model(data: dict[str, Any], dtype: str, quantization: str) -> Model:
    whole = Fields(data)
    inner, part = text_part(data)
    text = Fields(inner, f"{part}." if part else "")
    names = [one for one in (whole.items("architectures") or []) if isinstance(one, str)]
    architecture = names[0] if names else ""
    model_type = text.text("model_type") or whole.text("model_type")
    if not architecture and not model_type:
        raise refuse(
            "config_no_architecture",
            gettext_noop("This config.json names neither “architectures” nor “model_type”."),
            remedy=gettext_noop("Give the config.json beside the model's weights."),
        )
    traits, known = _traits(architecture, model_type, part)
    notes: list[Note] = []
    if not known:
        notes.append(
            warning(
                "architecture_unknown",
                gettext_noop("The architecture %(name)s is not known here: the figures are bounds."),
                field="config",
                name=architecture or model_type,
            )
        )
    hidden, heads, kv_heads, head = _sizes(text, model_type)
    count = _layer_count(text, model_type)
    dtype_name = _dtype(dtype, whole, text)
    latent = _latent(text, model_type)
    state = state_of(text, model_type, hidden)
    layers, kinds_known = layers_of(text, model_type, count, (heads, kv_heads, head), latent, state, known)
    if not kinds_known:
        notes.append(
            warning(
                "layers_unknown",
                gettext_noop(
                    "Which layers keep what is not certain for %(name)s: the cache is an upper bound."
                ),
                field="config",
                name=architecture or model_type,
            )
        )
    quant, quant_known = quant_of(
        whole if whole.get("quantization_config", "compression_config") or not part else text, quantization
    )
    if not quant_known and quant is not None:
        notes.append(
            warning(
                "quantisation_unknown",
                gettext_noop("The quantization “%(name)s” is not known here: the weights are bounds."),
                field="config",
                name=quant.method,
            )
        )
    experts = _experts(text, model_type, count, traits)
    multimodal = bool(part) and any(isinstance(data.get(name), dict) for name in _TOWERS)
    towers, tower_known = tower_parameters(whole, hidden) if multimodal else (0, True)
    positions, rope_size = _rope(text, head, latent)
    tied = _tied(whole, text, traits, part)
    encoder_only = traits.family == "bert"
    return Model(
        architecture=architecture or model_type,
        model_type=model_type,
        dtype=dtype_name,
        dtype_bytes=VALUE_BYTES[dtype_name],
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        vocab=text.whole("vocab_size", default=32000, high=10_000_000),
        intermediate=text.whole(
            "intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", default=4 * hidden
        ),
        longest=_longest(text) or 2048,
        limited=_longest(text) > 0,
        rope_positions=positions,
        rope_size=rope_size,
        tied=tied,
        traits=traits,
        state=state,
        latent=latent,
        experts=experts,
        quant=quant,
        tower_parameters=towers,
        tower_known=tower_known,
        multimodal=multimodal,
        encoder_tokens=text.whole("max_source_positions", default=1500) if traits.family == "whisper" else 0,
        encoder_layers=text.whole("encoder_layers", default=32, low=0) if traits.family == "whisper" else 0,
        generates=not (encoder_only or architecture.endswith(_EMBEDDING_WORDS)),
        known=known and (quant_known or quant is None),
        kinds_known=kinds_known,
        draft_layers=text.whole("num_nextn_predict_layers", default=0, low=0, high=1000),
        notes=tuple(notes),
        raw=inner,
    )


def _traits(architecture: str, model_type: str, part: str) -> tuple[Traits, bool]:
    if part and architecture not in families.TRAITS and model_type in families.TEXT_TRAITS:
        return families.TEXT_TRAITS[model_type], True
    if part and architecture in families.TRAITS and model_type in families.TEXT_TRAITS:
        # a wrapper such as LLaVA takes its text part's own layers
        return families.TEXT_TRAITS[model_type], True
    found = families.TRAITS.get(architecture)
    if found is not None:
        return found, True
    if not architecture and model_type in families.TEXT_TRAITS:
        return families.TEXT_TRAITS[model_type], True
    return Traits(), False


def _sizes(text: Fields, model_type: str) -> tuple[int, int, int, int]:
    """Hidden size, heads, key-value heads, head size."""
    hidden = text.whole("hidden_size", "n_embd", "d_model", "dim", high=1_000_000)
    if model_type in ("mamba", "mamba2", "falcon_mamba"):
        return hidden, 0, 0, 0
    heads = text.whole("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads", high=100_000)
    inner = text.object("attn_config")
    if inner and inner.get("kv_n_heads") is not None:  # DBRX
        kv_heads = inner.whole("kv_n_heads", high=100_000)
    elif model_type == "gpt_bigcode" or (
        model_type == "falcon" and not text.flag("new_decoder_architecture")
    ):
        kv_heads = 1 if text.flag("multi_query", default=True) else heads
    elif model_type in ("chatglm",) and not text.flag("multi_query_attention"):
        kv_heads = heads
    else:
        kv_heads = text.whole(
            "n_head_kv",
            "num_kv_heads",
            "num_key_value_heads",
            "multi_query_group_num",
            "num_attention_groups",
            default=heads,
            high=100_000,
        )
    named = text.perhaps("head_dim", "hidden_size_per_head", "attention_head_dim", high=1_000_000)
    head = named or hidden // heads
    if kv_heads > heads:
        raise _contradiction("num_key_value_heads", kv_heads, "num_attention_heads", heads)
    if not named and heads > hidden:
        raise _contradiction("num_attention_heads", heads, "hidden_size", hidden)
    return hidden, heads, kv_heads, head


def _contradiction(name: str, value: int, other: str, than: int) -> Unreadable:
    return Unreadable(
        error(
            "config_contradiction",
            gettext_noop("“%(name)s” is %(value)s, more than “%(other)s” (%(than)s): no model is built so."),
            field="config",
            name=name,
            value=value,
            other=other,
            than=than,
        )
    )


def _layer_count(text: Fields, model_type: str) -> int:
    names = ["num_hidden_layers", "n_layer", "n_layers", "decoder_layers"]
    if model_type == "longcat_flash":
        names = ["num_layers", *names]
    return text.whole(*names, "num_layers", high=10_000)


def _dtype(asked: str, whole: Fields, text: Fields) -> str:
    """The dtype that vLLM runs the model in: auto brings 32 bits down to 16."""
    if asked and asked != "auto":
        name = {"half": "float16", "float": "float32"}.get(asked, asked)
        return name if name in VALUE_BYTES else "bfloat16"
    found = whole.get("dtype", "torch_dtype") or text.get("dtype", "torch_dtype")
    name = found.removeprefix("torch.") if isinstance(found, str) else "bfloat16"
    return name if name in ("float16", "bfloat16") else ("float16" if name == "half" else "bfloat16")


def _latent(text: Fields, model_type: str) -> Latent | None:
    if model_type not in families.LATENT_TYPES or text.get("kv_lora_rank") is None:
        return None
    return Latent(
        kv_rank=text.whole("kv_lora_rank"),
        rope=text.whole("qk_rope_head_dim", low=0),
        nope=text.whole("qk_nope_head_dim", low=0),
        value=text.whole("v_head_dim"),
        q_rank=text.whole("q_lora_rank", default=0, low=0),
        index_heads=text.whole("index_n_heads", default=0, low=0),
        index_head=text.whole("index_head_dim", default=0, low=0),
    )


def _experts(text: Fields, model_type: str, count: int, traits: Traits) -> Experts | None:
    raw = text.get("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
    inner = text.object("ffn_config")
    if raw is None and inner and inner.get("moe_num_experts") is not None:
        text, raw = inner, inner.get("moe_num_experts")
    if isinstance(raw, list):
        raw = raw[0] if raw else 0
    if raw in (None, 0):
        return None
    number = Fields({"num_experts": raw}).whole("num_experts", high=100_000)
    if number <= 1:
        return None
    width = text.whole(
        "moe_intermediate_size",
        "expert_intermediate_size",
        "ffn_hidden_size",
        "intermediate_size",
        default=0,
        low=0,
    )
    shared = text.whole("shared_expert_intermediate_size", "shared_intermediate_size", default=0, low=0)
    if not shared:
        shared = width * text.whole("n_shared_experts", "num_shared_experts", default=0, low=0, high=1000)
    if model_type == "llama4_text":
        width = shared = text.whole("intermediate_size")
    return Experts(
        number=number,
        active=text.whole("num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_k", default=1),
        width=width,
        layers=_expert_layers(text, model_type, count),
        shared=shared,
        shared_gate=model_type in ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text"),
        router_bias=traits.family == "gpt-oss",
        biases=traits.family == "gpt-oss",
    )


def _expert_layers(text: Fields, model_type: str, count: int) -> frozenset[int]:
    everyone = range(count)
    if model_type == "llama4_text":
        listed = text.items("moe_layers")
        step = text.whole("interleave_moe_layer_step", default=1, low=0)
        if listed is not None:
            return frozenset(one for one in listed if isinstance(one, int) and 0 <= one < count)
        return frozenset(one for one in everyone if step and (one + 1) % step == 0)
    if model_type == "jamba":
        period, offset = (
            text.whole("expert_layer_period", default=2),
            text.whole("expert_layer_offset", default=1, low=0),
        )
        return frozenset(one for one in everyone if one % period == offset)
    if text.get("hybrid_override_pattern") is not None:
        pattern = text.text("hybrid_override_pattern")
        return frozenset(place for place, letter in enumerate(pattern[:count]) if letter == "E")
    first = text.whole("first_k_dense_replace", default=0, low=0)
    every = text.whole("moe_layer_freq", default=1) if isinstance(text.get("moe_layer_freq"), int) else 1
    sparse = text.whole("decoder_sparse_step", default=1, low=0)
    plain = {one for one in (text.items("mlp_only_layers") or []) if isinstance(one, int)}
    return frozenset(
        one
        for one in everyone
        if one >= first
        and one % every == 0
        and one not in plain
        and (sparse <= 1 or (one + 1) % sparse == 0)
        and sparse > 0
    )


def _rope(text: Fields, head: int, latent: Latent | None) -> tuple[int, int]:
    """Positions and size of the table of rotary angles that vLLM keeps beside the weights."""
    positions = text.whole(
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", default=2048
    )
    scaling = text.object("rope_scaling") or text.object("rope_parameters")
    size = latent.rope if latent else int(head * text.number("partial_rotary_factor", 1.0))
    if scaling:
        kind = scaling.text("rope_type", "type", default="default")
        original = scaling.perhaps("original_max_position_embeddings", low=1)
        factor = scaling.number("factor", 1.0)
        if kind in ("yarn", "deepseek_yarn") and original:
            positions = int(original * factor)
        elif kind == "linear":
            positions = int(positions * factor)
        partial = scaling.number("partial_rotary_factor", 0.0)
        if partial and not latent:
            size = int(head * partial)
    return positions, size


def _longest(text: Fields) -> int:
    """The context limit by the config alone, as vLLM derives it; 0 where it sets none."""
    names = (
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "model_max_length",
        "max_target_positions",
        "max_sequence_length",
        "max_seq_length",
        "seq_len",
    )
    found = [text.whole(name, high=10**10) for name in names if text.get(name) is not None]
    limit = min(found, default=0)
    if text.get("model_max_length") is not None:
        limit = text.whole("model_max_length", high=10**10)
    scaling = text.object("rope_scaling") or text.object("rope_parameters")
    if scaling and scaling.get("factor") is not None:
        kind = scaling.text("rope_type", "type", default="default")
        factor = scaling.number("factor", 1.0)
        if kind == "yarn" and scaling.get("original_max_position_embeddings") is not None:
            limit = int(scaling.whole("original_max_position_embeddings") * factor)
        elif (
            kind not in ("su", "longrope", "llama3", "default", "mrope")
            and text.text("model_type") != "gemma3_text"
            and factor > 1
        ):
            limit = int(limit * factor)
    return limit


def _tied(whole: Fields, text: Fields, traits: Traits, part: str) -> bool:
    for where in (text, whole):
        if where.get("tie_word_embeddings") is not None:
            return where.flag("tie_word_embeddings")
    return traits.tied
