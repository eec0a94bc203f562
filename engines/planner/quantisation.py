"""How a checkpoint stores its linear layers: quantization_config of a config.json, or --quantization.

Source: vLLM's model_executor/layers/quantization/*.py (weight shapes of each method).
"""

from __future__ import annotations

from typing import Any

from engines.planner.fields import Fields
from engines.planner.model import Quant

#: --quantization values that quantise a plain checkpoint while it loads
ON_LOAD = {
    "fp8": Quant("fp8", 8, group=-1, scale_bytes=4, activation_bits=8),
    "fp8_per_tensor": Quant("fp8", 8, group=-1, scale_bytes=4, activation_bits=8),
    "fp8_per_block": Quant("fp8", 8, group=-2, scale_bytes=4, activation_bits=8),
    "bitsandbytes": Quant("bitsandbytes", 4, group=64, scale_bytes=4),
    "experts_int8": Quant("experts_int8", 8, group=0, scale_bytes=4, experts_only=True),
    "mxfp4": Quant("mxfp4", 4, group=32, scale_bytes=1, experts_only=True),
}


def quant_of(config: Fields, asked: str = "") -> tuple[Quant | None, bool]:
    """The quantisation of a checkpoint, and whether its method is known.

    ``asked`` is --quantization: it matters only where the checkpoint itself names none.
    """
    found = config.object("quantization_config") or config.object("compression_config")
    if found is None:
        if not asked:
            return None, True
        return ON_LOAD.get(asked), asked in ON_LOAD
    method = found.text("quant_method").lower().replace("compressed_tensors", "compressed-tensors")
    producer = found.object("producer")
    if producer and producer.text("name") == "modelopt":
        inner = found.object("quantization")
        algorithm = inner.text("quant_algo").upper() if inner else ""
        method = "modelopt_fp4" if "NVFP4" in algorithm else "modelopt"
    reader = _READERS.get(method)
    if reader is None:
        return Quant(method or "unnamed", 8), False
    return reader(found), True


def _plain(found: Fields, *names: str) -> tuple[str, ...]:
    listed = found.items(*names) or []
    return tuple(one for one in listed if isinstance(one, str))


def _awq(found: Fields) -> Quant:
    return Quant(
        "awq",
        found.whole("bits", "w_bit", default=4, high=16),
        group=found.whole("group_size", "q_group_size", default=128, low=-1, high=100_000),
        zeros=found.flag("zero_point", default=True),
        plain=_plain(found, "modules_to_not_convert"),
    )


def _gptq(found: Fields) -> Quant:
    return Quant(
        "gptq",
        found.whole("bits", default=4, high=16),
        group=max(found.whole("group_size", default=128, low=-1, high=100_000), 0),
        zeros=not found.flag("sym", default=True),
        plain=_plain(found, "modules_in_block_to_not_quantize"),
    )


def _fp8(found: Fields) -> Quant:
    blocks = found.items("weight_block_size")
    return Quant(
        "fp8",
        8,
        group=-2 if blocks else -1,
        scale_bytes=4,
        static_activations=found.text("activation_scheme", default="dynamic") == "static",
        activation_bits=8,
        plain=_plain(found, "ignored_layers", "modules_to_not_convert"),
    )


def _bnb(found: Fields) -> Quant:
    eight = found.flag("load_in_8bit")
    return Quant(
        "bitsandbytes",
        8 if eight else 4,
        group=0 if eight else 64,
        scale_bytes=4,
        plain=_plain(found, "llm_int8_skip_modules"),
    )


def _mxfp4(found: Fields) -> Quant:
    return Quant(
        "mxfp4",
        4,
        group=32,
        scale_bytes=1,
        plain=_plain(found, "modules_to_not_convert"),
        experts_only=True,
    )


def _modelopt(found: Fields) -> Quant:
    inner = found.object("quantization") or found
    cache = inner.text("kv_cache_quant_algo")
    return Quant(
        "modelopt",
        8,
        group=-1,
        scale_bytes=4,
        static_activations=True,
        activation_bits=8,
        plain=_plain(inner, "exclude_modules"),
        cache_bits=8 if cache.upper() == "FP8" else 0,
    )


def _modelopt_fp4(found: Fields) -> Quant:
    inner = found.object("quantization") or found
    cache = inner.text("kv_cache_quant_algo")
    return Quant(
        "modelopt_fp4",
        4,
        group=16,
        scale_bytes=1,
        activation_bits=4,
        plain=_plain(inner, "exclude_modules"),
        cache_bits=8 if cache.upper() == "FP8" else 0,
    )


def _compressed(found: Fields) -> Quant:
    groups = found.object("config_groups")
    first: Any = None
    if groups:
        first = next((one for one in groups.data.values() if isinstance(one, dict)), None)
    weights = Fields(first, "quantization_config.config_groups.").object("weights") if first else None
    inputs = Fields(first).object("input_activations") if first else None
    scheme = found.object("kv_cache_scheme")
    cache_bits = scheme.whole("num_bits", default=8, high=16) if scheme else 0
    if weights is None:
        return Quant("compressed-tensors", 16, cache_bits=cache_bits)
    strategy = weights.text("strategy", default="tensor")
    group = {"tensor": -1, "channel": 0, "block": -2}.get(strategy)
    bits = weights.whole("num_bits", default=8, high=16)
    floats = weights.text("type", default="int") == "float"
    return Quant(
        "compressed-tensors",
        bits,
        group=weights.whole("group_size", default=128, high=100_000) if group is None else group,
        scale_bytes=1 if floats and bits == 4 else (4 if inputs else 2),
        zeros=not weights.flag("symmetric", default=True),
        static_activations=bool(inputs and not inputs.flag("dynamic")),
        activation_bits=inputs.whole("num_bits", default=16, high=16) if inputs else 16,
        plain=_plain(found, "ignore"),
        cache_bits=cache_bits,
    )


_READERS = {
    "awq": _awq,
    "awq_marlin": _awq,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "fp8": _fp8,
    "fbgemm_fp8": lambda found: Quant(
        "fbgemm_fp8",
        8,
        group=0,
        scale_bytes=4,
        activation_bits=8,
        plain=_plain(found, "modules_to_not_convert"),
    ),
    "bitsandbytes": _bnb,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt_fp4,
    "compressed-tensors": _compressed,
}
