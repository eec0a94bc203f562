"""What each layer of a model keeps of a request, from its config.json.

Source: the layer_types that transformers' configuration classes fill in, and the models in vLLM's
model_executor/models (which attention a layer is built with, and its state's shape).
"""

from __future__ import annotations

from engines.planner.caches import VALUE_BYTES, Kind
from engines.planner.fields import Fields, refuse
from engines.planner.model import Latent, Layer, State, StateKind
from engines.vllm.notes import gettext_noop

_FULL_WORDS = frozenset({"full_attention", "attention", "full", "global", "global_attention"})
_SLIDING_WORDS = frozenset({"sliding_attention", "sliding", "local", "local_attention"})
_STATE_WORDS = frozenset({"linear_attention", "mamba", "mamba2", "linear", "conv", "recurrent"})
_HYBRID_WORDS = frozenset({"hybrid", "parallel_hybrid"})
_EMPTY_WORDS = frozenset({"mlp", "moe", "dense"})

Heads = tuple[int, int, int]


def layers_of(
    text: Fields,
    model_type: str,
    count: int,
    heads: Heads,
    latent: Latent | None,
    state: State | None,
    known: bool,
) -> tuple[tuple[Layer, ...], bool]:
    """Every decoder layer, and whether what they keep is certain."""
    words, certain = _words(text, model_type, count, state)
    if words is None:
        words, certain = ["full_attention"] * count, known and certain
    window = text.perhaps("sliding_window") or 0
    chunk = text.perhaps("attention_chunk_size") or 0
    shared = min(text.perhaps("num_kv_shared_layers") or 0, count)
    if model_type in ("bert", "roberta", "xlm-roberta", "modernbert", "nomic_bert", "new"):
        return tuple(Layer(Kind.NONE, *heads, heads[2]) for _ in words), True
    built: list[Layer] = []
    for place, word in enumerate(words):
        layer = _layer(word, text, model_type, heads, latent, window, chunk)
        if layer is None:
            certain = False
            layer = Layer(Kind.FULL, *heads, heads[2])
        if shared and place >= count - shared and layer.kind is not Kind.NONE:
            layer = Layer(Kind.NONE, *heads, heads[2], shares=True)
        built.append(layer)
    return tuple(built), certain


def _layer(
    word: str, text: Fields, model_type: str, heads: Heads, latent: Latent | None, window: int, chunk: int
) -> Layer | None:
    number, kv_heads, head = heads
    if word in _EMPTY_WORDS:
        return Layer(Kind.NONE)
    if word in _STATE_WORDS:
        return Layer(Kind.NONE, has_state=True)
    if word in _HYBRID_WORDS:
        return Layer(Kind.FULL, number, kv_heads, head, head, has_state=True)
    if word in _FULL_WORDS:
        if latent:
            return Layer(Kind.LATENT, number, 1, latent.kept, 0, indexer=bool(latent.index_head))
        if model_type in ("gemma4_text", "gemma4") and text.get("global_head_dim") is not None:
            size = text.whole("global_head_dim")
            wide = text.perhaps("num_global_key_value_heads") or kv_heads
            return Layer(Kind.FULL, number, wide, size, size)
        value = text.perhaps("v_head_dim") or head
        return Layer(Kind.FULL, number, kv_heads, head, value)
    if word in _SLIDING_WORDS:
        if not window:
            return Layer(Kind.FULL, number, kv_heads, head, head)
        return Layer(Kind.SLIDING, number, kv_heads, head, head, window=window)
    if word == "chunked_attention":
        return Layer(Kind.CHUNKED, number, kv_heads, head, head, window=chunk or 8192)
    return None


def _words(text: Fields, model_type: str, count: int, state: State | None) -> tuple[list[str] | None, bool]:
    """A word for each layer, as layer_types has them; None where every layer is a plain one."""
    given = text.items("layer_types", "layers_block_type")
    if given is not None:
        words = [one if isinstance(one, str) else "?" for one in given]
        if len(words) != count:
            raise refuse(
                "config_layer_types",
                gettext_noop("“layer_types” lists %(listed)s layers and the model has %(layers)s."),
                listed=len(words),
                layers=count,
            )
        # a window that is switched off leaves plain layers
        if text.get("use_sliding_window") is False:
            words = ["full_attention" if one in _SLIDING_WORDS else one for one in words]
        return words, True
    maker = _PATTERNS.get(model_type)
    if maker is not None:
        return maker(text, count), True
    if text.get("hybrid_override_pattern") is not None:
        return _nemotron(text, count), True
    listed = text.items("attn_type_list")
    if listed is not None and len(listed) == count:
        return ["full_attention" if one == 1 else "linear_attention" for one in listed], True
    if state is not None:
        return ["mamba"] * count, model_type in ("mamba", "mamba2", "falcon_mamba")
    if text.perhaps("sliding_window"):
        if text.get("use_sliding_window") is False:
            return None, True
        return ["sliding_attention"] * count, True
    return None, True


def _every(count: int, nth: int, special: str, other: str) -> list[str]:
    """``special`` at every nth layer, counted from one."""
    return [special if nth and (place + 1) % nth == 0 else other for place in range(count)]


def _gemma3(text: Fields, count: int) -> list[str]:
    nth = text.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return _every(count, nth, "full_attention", "sliding_attention")


def _gemma3n(text: Fields, count: int) -> list[str]:
    return _every(count, 5, "full_attention", "sliding_attention")


def _cohere2(text: Fields, count: int) -> list[str]:
    nth = text.whole("sliding_window_pattern", "_sliding_window_pattern", default=4)
    return _every(count, nth, "full_attention", "sliding_attention")


def _even_sliding(text: Fields, count: int) -> list[str]:
    return ["full_attention" if place % 2 else "sliding_attention" for place in range(count)]


def _qwen(text: Fields, count: int) -> list[str]:
    """A window only where it is switched on, from max_window_layers upwards."""
    if not text.flag("use_sliding_window") or not text.perhaps("sliding_window"):
        return ["full_attention"] * count
    first = text.whole("max_window_layers", default=28, low=0)
    return ["sliding_attention" if place >= first else "full_attention" for place in range(count)]


def _delta(text: Fields, count: int) -> list[str]:
    nth = text.whole("full_attention_interval", default=4)
    return _every(count, nth, "full_attention", "linear_attention")


def _llama4(text: Fields, count: int) -> list[str]:
    listed = text.items("no_rope_layers")
    if listed:
        return ["chunked_attention" if one else "full_attention" for one in listed[:count]]
    nth = text.whole("no_rope_layer_interval", default=4)
    return _every(count, nth, "full_attention", "chunked_attention")


def _jamba(text: Fields, count: int) -> list[str]:
    period = text.whole("attn_layer_period", default=8)
    offset = text.whole("attn_layer_offset", default=4, low=0)
    return ["attention" if place % period == offset else "mamba" for place in range(count)]


def _bamba(text: Fields, count: int) -> list[str]:
    listed = text.items("attn_layer_indices") or []
    return ["attention" if place in listed else "mamba" for place in range(count)]


def _nemotron(text: Fields, count: int) -> list[str]:
    letters = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    pattern = text.text("hybrid_override_pattern")
    if len(pattern) != count:
        raise refuse(
            "config_layer_types",
            gettext_noop("“hybrid_override_pattern” lists %(listed)s layers and the model has %(layers)s."),
            listed=len(pattern),
            layers=count,
        )
    return [letters.get(letter, "?") for letter in pattern]


def _kimi(text: Fields, count: int) -> list[str]:
    inner = text.object("linear_attn_config")
    listed = (inner.items("kda_layers") if inner else None) or []
    return ["linear_attention" if place + 1 in listed else "full_attention" for place in range(count)]


def _falcon_h1(text: Fields, count: int) -> list[str]:
    return ["parallel_hybrid"] * count


def _lfm2(text: Fields, count: int) -> list[str]:
    listed = text.items("full_attn_idxs") or []
    return ["full_attention" if place in listed else "conv" for place in range(count)]


_PATTERNS = {
    "gemma2": _even_sliding,
    "gemma3_text": _gemma3,
    "gemma3n_text": _gemma3n,
    "cohere2": _cohere2,
    "gpt_oss": _even_sliding,
    "qwen2": _qwen,
    "qwen2_moe": _qwen,
    "qwen2_5_vl_text": _qwen,
    "qwen2_vl_text": _qwen,
    "qwen2_vl": _qwen,
    "qwen2_5_vl": _qwen,
    "qwen3": _qwen,
    "qwen3_moe": _qwen,
    "qwen3_next": _delta,
    "qwen3_5_text": _delta,
    "qwen3_5_moe_text": _delta,
    "llama4_text": _llama4,
    "jamba": _jamba,
    "bamba": _bamba,
    "nemotron_h": _nemotron,
    "kimi_linear": _kimi,
    "falcon_h1": _falcon_h1,
    "lfm2": _lfm2,
}


# State layers ------------------------------------------------------------------------------------------


def state_of(text: Fields, model_type: str, hidden: int) -> State | None:
    """The state that a layer without attention keeps; None for models that have none."""
    maker = _STATES.get(model_type)
    if maker is not None:
        return maker(text, hidden)
    if text.get("linear_num_value_heads") is not None:
        return _delta_state(text, hidden)
    if text.get("ssm_state_size", "mamba_d_state") is not None:
        return _mamba2_state(text, hidden)
    if text.get("attn_type_list") is not None:
        return _linear_state(text, hidden)
    return None


def _bytes_of(text: Fields, name: str, default: int = 0) -> int:
    value = text.get(name)
    return VALUE_BYTES.get(value, default) if isinstance(value, str) else default


def _mamba1_state(text: Fields, hidden: int) -> State:
    expand = text.whole("expand", "mamba_expand", default=2, high=1000)
    return State(
        StateKind.MAMBA1,
        inner=text.whole("intermediate_size", default=expand * hidden)
        if text.get("mamba_expand") is None
        else expand * hidden,
        size=text.whole("state_size", "mamba_d_state", default=16),
        conv=text.whole("conv_kernel", "mamba_d_conv", default=4),
        rank=text.whole("time_step_rank", "mamba_dt_rank", default=hidden // 16)
        if isinstance(text.get("time_step_rank", "mamba_dt_rank"), int)
        else -(-hidden // 16),
    )


def _mamba2_state(text: Fields, hidden: int) -> State:
    heads = text.whole("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads", default=128)
    head = text.perhaps("mamba_head_dim", "mamba_d_head", "mamba_headdim")
    if head is None and isinstance(text.get("mamba_d_head"), int):
        head = text.whole("mamba_d_head")
    if head is None:
        expand = text.whole("mamba_expand", "expand", default=2, high=1000)
        head = text.perhaps("head_dim") if text.get("state_size") is not None else None
        head = head or max(expand * hidden // heads, 1)
    inner = text.perhaps("mamba_d_ssm") or heads * head
    return State(
        StateKind.MAMBA2,
        inner=inner,
        groups=text.whole("n_groups", "mamba_n_groups", "mamba_ngroups", default=1),
        heads=heads,
        head=head,
        size=text.whole("ssm_state_size", "mamba_d_state", "state_size", default=128),
        conv=text.whole("conv_kernel", "mamba_d_conv", "mamba_conv_kernel", default=4),
        dtype=_bytes_of(text, "mamba_ssm_cache_dtype", 4 if text.text("model_type") == "nemotron_h" else 0),
        chunk=text.whole("mamba_chunk_size", "chunk_size", default=2048),
    )


def _delta_state(text: Fields, hidden: int) -> State:
    return State(
        StateKind.DELTA,
        heads=text.whole("linear_num_value_heads", default=32),
        head=text.whole("linear_value_head_dim", default=128),
        key_heads=text.whole("linear_num_key_heads", default=16),
        key_head=text.whole("linear_key_head_dim", default=128),
        conv=text.whole("linear_conv_kernel_dim", default=4),
        dtype=_bytes_of(text, "mamba_ssm_dtype"),
    )


def _kda_state(text: Fields, hidden: int) -> State | None:
    inner = text.object("linear_attn_config")
    if inner is None:
        return None
    return State(
        StateKind.KDA,
        heads=inner.whole("num_heads"),
        head=inner.whole("head_dim"),
        conv=inner.whole("short_conv_kernel_size", default=4),
        dtype=4,
    )


def _linear_state(text: Fields, hidden: int) -> State:
    heads = text.whole("num_attention_heads")
    return State(StateKind.LINEAR, heads=heads, head=text.perhaps("head_dim") or max(hidden // heads, 1))


def _conv_state(text: Fields, hidden: int) -> State:
    return State(
        StateKind.CONV,
        inner=text.whole("conv_dim", default=hidden),
        conv=text.whole("conv_L_cache", default=3),
    )


_STATES = {
    "mamba": _mamba1_state,
    "falcon_mamba": _mamba1_state,
    "jamba": _mamba1_state,
    "mamba2": _mamba2_state,
    "bamba": _mamba2_state,
    "nemotron_h": _mamba2_state,
    "falcon_h1": _mamba2_state,
    "zamba2": _mamba2_state,
    "qwen3_next": _delta_state,
    "qwen3_5_text": _delta_state,
    "qwen3_5_moe_text": _delta_state,
    "kimi_linear": _kda_state,
    "lfm2": _conv_state,
}


def state_bytes(state: State, model_bytes: int, tensor: int, speculative: int = 0) -> int:
    """Bytes of one layer's state on one card of ``tensor``; what cannot be split is rounded up."""
    recurrent = state.dtype or model_bytes
    if state.kind is StateKind.MAMBA1:
        inner = -(-state.inner // tensor)
        return inner * (state.conv - 1) * model_bytes + inner * state.size * recurrent
    if state.kind is StateKind.MAMBA2:
        groups = state.groups if state.groups % tensor == 0 else tensor
        conv = -(-(state.inner + 2 * groups * state.size) // tensor)
        heads = -(-state.heads // tensor)
        return (
            conv * (state.conv - 1 + speculative) * model_bytes + heads * state.head * state.size * recurrent
        )
    if state.kind is StateKind.DELTA:
        conv = -(-(2 * state.key_head * state.key_heads + state.head * state.heads) // tensor)
        heads = -(-state.heads // tensor)
        return (
            conv * (state.conv - 1 + speculative) * model_bytes
            + heads * state.head * state.key_head * recurrent
        )
    if state.kind is StateKind.KDA:
        conv = -(-3 * state.heads * state.head // tensor)
        return conv * (state.conv - 1) * model_bytes + -(-state.heads // tensor) * state.head**2 * 4
    if state.kind is StateKind.LINEAR:
        return -(-state.heads // tensor) * state.head**2 * recurrent
    return -(-state.inner // tensor) * (state.conv - 1) * model_bytes
