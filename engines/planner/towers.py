"""Parameters of what stands beside a text decoder: vision and audio towers, and their projectors.

Source: the towers in vLLM's model_executor/models (pixtral, siglip, clip, qwen2_vl, qwen2_5_vl, qwen3_vl,
whisper). A tower not listed is bounded by its own sizes.
"""

from __future__ import annotations

from engines.planner.fields import Fields


def tower_parameters(whole: Fields, hidden: int) -> tuple[int, bool]:
    """Parameters of all towers and projectors, and whether every one is known."""
    total, known = 0, True
    for name in ("vision_config", "audio_config", "vision_tower", "vit_config", "speech_config"):
        found = whole.get(name)
        if not isinstance(found, dict):
            continue
        count, sure = _tower(Fields(found, f"{name}."), hidden)
        total += count
        known = known and sure
    return total, known


def _tower(part: Fields, hidden: int) -> tuple[int, bool]:
    kind = part.text("model_type")
    width = part.whole("hidden_size", "embed_dim", "width", "d_model", default=1152)
    depth = part.whole("num_hidden_layers", "depth", "encoder_layers", "layers", default=27, high=10_000)
    patch = part.whole("patch_size", default=14)
    channels = part.whole("num_channels", "in_channels", "in_chans", default=3)
    if kind in ("qwen2_vl",):
        ratio = int(part.number("mlp_ratio", 4))
        width = part.whole("embed_dim", default=1280)
        block = _layer(width, ratio * width, gated=False, biases=True)
        time = part.whole("temporal_patch_size", default=2)
        merger = part.whole("spatial_merge_size", default=2) ** 2 * width
        out = part.whole("hidden_size", default=hidden)
        return depth * block + channels * time * patch**2 * width + merger * merger + merger * out, True
    inner = part.whole("intermediate_size", "encoder_ffn_dim", default=4 * width)
    if kind in ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"):
        gated = kind == "qwen2_5_vl"
        time = part.whole("temporal_patch_size", default=2)
        merger = part.whole("spatial_merge_size", default=2) ** 2 * width
        out = part.whole("out_hidden_size", default=hidden)
        one = merger * merger + merger * out + merger + out
        # Qwen3-VL taps three layers, each with a merger of its own
        taps = len(part.items("deepstack_visual_indexes") or []) if "qwen3" in kind else 0
        positions = part.whole("num_position_embeddings", default=2304) * width if "qwen3" in kind else 0
        total = depth * _layer(width, inner, gated=gated, biases=True) + (1 + taps) * one + positions
        return total + channels * time * patch**2 * width, True
    if kind in ("siglip_vision_model", "clip_vision_model"):
        image = part.whole("image_size", default=224)
        positions = (image // patch) ** 2 + (1 if kind.startswith("clip") else 0)
        total = depth * _layer(width, inner, gated=False, biases=True) + positions * width
        return total + channels * patch**2 * width + width * hidden, True
    if kind == "pixtral":
        total = depth * _layer(width, inner, gated=True, biases=False) + channels * patch**2 * width
        return total + width * hidden + hidden * hidden, True
    return depth * _layer(width, inner, gated=True, biases=True) + 2 * width * hidden + hidden**2, False


def _layer(width: int, inner: int, *, gated: bool, biases: bool) -> int:
    """Parameters of one transformer layer of a tower."""
    attention = 4 * width * width + (4 * width if biases else 0)
    mlp = (3 if gated else 2) * width * inner + ((inner * (2 if gated else 1) + width) if biases else 0)
    return attention + mlp + (4 * width if biases else 2 * width)
