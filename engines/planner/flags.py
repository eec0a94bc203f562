"""The flags that decide memory, as numbers: what was set, and vLLM's default for the rest.

Source: vLLM's engine/arg_utils.py (get_batch_defaults, _set_default_max_num_seqs_and_batched_tokens_args)
and platforms/cuda.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.planner.model import Model
from engines.planner.rules import Rules

#: model types that keep a state at each page's end when prefixes are cached (SupportsMambaPrefixCaching)
EVERY_STATE = frozenset(
    {"falcon_h1", "granitemoehybrid", "jamba", "mamba", "falcon_mamba", "mamba2", "nemotron_h", "zamba2"}
)
#: name of the "card" on which vLLM's build for processors runs
PROCESSOR = "CPU"


@dataclass(frozen=True)
class Card:
    """One GPU. ``free_bytes`` is what nobody uses before the start; None where it is not known."""

    name: str
    total_bytes: int
    free_bytes: int | None = None

    @property
    def is_processor(self) -> bool:
        """vLLM's build for processors: the cache's size is set by VLLM_CPU_KVCACHE_SPACE, not measured."""
        return self.name == PROCESSOR

    @property
    def fp8(self) -> bool:
        """Has 8-bit floating point (Ada, Hopper, Blackwell)."""
        name = self.name.upper()
        return any(
            word in name
            for word in ("H100", "H200", "H20", "GH200", "B100", "B200", "B300", "L4", "L40", "4090", "5090")
        )

    @property
    def hopper(self) -> bool:
        name = self.name.upper()
        return any(word in name for word in ("H100", "H200", "H20", "H800"))


@dataclass(frozen=True)
class Flags:
    """None is "not set". Names are vLLM's."""

    max_model_len: int | None = None
    #: max-model-len auto (or -1): as long as memory allows
    length_auto: bool = False
    gpu_memory_utilization: float | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    kv_cache_dtype: str = "auto"
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    enable_prefix_caching: bool | None = None
    enforce_eager: bool = False
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    disable_hybrid_kv_cache_manager: bool = False
    cpu_offload_gb: float = 0
    max_loras: int = 0
    max_lora_rank: int = 16
    speculative_tokens: int = 0
    speculative_layers: int = 0
    draft_bytes: int = 0
    language_model_only: bool = False
    throughput_mode: bool = False
    mamba_cache_mode: str = ""
    mamba_ssm_cache_dtype: str = "auto"

    @property
    def world(self) -> int:
        """Cards of one replica."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.prefill_context_parallel_size


@dataclass(frozen=True)
class Settled:
    """Flags with every default filled in for one version, model and card."""

    flags: Flags
    max_model_len: int
    utilization: float
    batched_tokens: int
    sequences: int
    prefix_caching: bool
    state_mode: str

    @property
    def graphs(self) -> bool:
        return not self.flags.enforce_eager


def settle(flags: Flags, model: Model, card: Card, rules: Rules) -> Settled:
    """Fill in what vLLM would."""
    length = flags.max_model_len or model.longest
    batched = flags.max_num_batched_tokens or rules.batched_tokens(card.total_bytes, card.name)
    sequences = flags.max_num_seqs or rules.sequences(card.total_bytes, card.name)
    if flags.throughput_mode:
        batched *= 1 if flags.max_num_batched_tokens else 2
        sequences *= 1 if flags.max_num_seqs else 2
    if not flags.max_num_batched_tokens:
        if rules.first_engine or not model.generates:
            batched = max(batched, length)
        batched = min(sequences * length, batched)
    if not flags.max_num_seqs:
        sequences = min(sequences, batched)
    prefix = flags.enable_prefix_caching
    if prefix is None:
        prefix = rules.prefix_caching and (not model.has_state or rules.hybrid_prefix_caching)
    mode = flags.mamba_cache_mode or "none"
    if prefix and model.has_state and (mode != "align" or model.model_type not in EVERY_STATE):
        mode = "all" if model.model_type in EVERY_STATE else "align"
    if not prefix:
        mode = "none"
    return Settled(
        flags=flags,
        max_model_len=length,
        utilization=flags.gpu_memory_utilization or rules.utilization,
        batched_tokens=batched,
        sequences=sequences,
        prefix_caching=prefix,
        state_mode=mode,
    )


def values_of(words: Sequence[str]) -> dict[str, Any]:
    """``--max-num-seqs 64 --enforce-eager`` as {"max_num_seqs": "64", "enforce_eager": True}."""
    values: dict[str, Any] = {}
    place = 0
    while place < len(words):
        if not words[place].startswith("--"):
            place += 1
            continue
        name, equals, given = words[place].removeprefix("--").partition("=")
        name = name.replace("-", "_")
        follows = place + 1 < len(words) and not words[place + 1].startswith("--")
        if equals:
            values[name] = given
        elif follows:
            values[name] = words[place + 1]
            place += 1
        elif name.startswith("no_"):
            values[name.removeprefix("no_")] = False
        else:
            values[name] = True
        place += 1
    return values


def _whole(value: Any) -> int | None:
    """32768, "32k" (thousands) or "32K" (1024s) as a number; None for what is not set."""
    if isinstance(value, bool) or value in (None, ""):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value)
    text = str(value).strip().replace(",", "").replace("_", "")
    scale = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:])
    try:
        return int(float(text[:-1]) * scale) if scale else int(text)
    except ValueError:
        return None


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) or value in (None, "") else float(value)
    except (TypeError, ValueError):
        return None


def flags_of(values: Mapping[str, Any]) -> Flags:
    """Flags from a profile's typed values (keys as vLLM's flags, with underscores)."""
    asked = values.get("max_model_len")
    automatic = str(asked).strip() in ("auto", "-1")
    speculative = values.get("speculative_config")
    if isinstance(speculative, str) and speculative:
        try:
            speculative = json.loads(speculative)
        except ValueError:
            speculative = None
    tokens = _whole(speculative.get("num_speculative_tokens")) if isinstance(speculative, dict) else None
    return Flags(
        max_model_len=None if automatic else _whole(asked),
        length_auto=automatic,
        gpu_memory_utilization=_number(values.get("gpu_memory_utilization")),
        max_num_batched_tokens=_whole(values.get("max_num_batched_tokens")),
        max_num_seqs=_whole(values.get("max_num_seqs")),
        block_size=_whole(values.get("block_size")),
        kv_cache_dtype=str(values.get("kv_cache_dtype") or "auto"),
        kv_cache_memory_bytes=_whole(values.get("kv_cache_memory_bytes")),
        num_gpu_blocks_override=_whole(values.get("num_gpu_blocks_override")),
        enable_prefix_caching=_flag(values.get("enable_prefix_caching")),
        enforce_eager=bool(_flag(values.get("enforce_eager"))),
        tensor_parallel_size=_whole(values.get("tensor_parallel_size")) or 1,
        pipeline_parallel_size=_whole(values.get("pipeline_parallel_size")) or 1,
        data_parallel_size=_whole(values.get("data_parallel_size")) or 1,
        decode_context_parallel_size=_whole(values.get("decode_context_parallel_size")) or 1,
        prefill_context_parallel_size=_whole(values.get("prefill_context_parallel_size")) or 1,
        enable_expert_parallel=bool(_flag(values.get("enable_expert_parallel"))),
        disable_hybrid_kv_cache_manager=bool(_flag(values.get("disable_hybrid_kv_cache_manager"))),
        cpu_offload_gb=_number(values.get("cpu_offload_gb")) or 0,
        max_loras=(_whole(values.get("max_loras")) or 1) if _flag(values.get("enable_lora")) else 0,
        max_lora_rank=_whole(values.get("max_lora_rank")) or 16,
        speculative_tokens=tokens or 0,
        language_model_only=bool(_flag(values.get("language_model_only"))),
        throughput_mode=values.get("performance_mode") == "throughput",
        mamba_cache_mode=str(values.get("mamba_cache_mode") or ""),
        mamba_ssm_cache_dtype=str(values.get("mamba_ssm_cache_dtype") or "auto"),
    )


def _flag(value: Any) -> bool | None:
    if value in (None, ""):
        return None
    if isinstance(value, str):
        return value.strip().lower() in ("1", "true", "yes", "on")
    return bool(value)


def seen_bytes(total_mib: float, used_mib: float | None = None, free_mib: float | None = None) -> int:
    """What CUDA reports as a card's total, from what nvidia-smi says in MiB.

    The driver keeps a part that nvidia-smi counts in neither used nor free: 616 MiB of an H200.
    """
    if used_mib is not None and free_mib is not None and 0.9 * total_mib <= used_mib + free_mib <= total_mib:
        return int((used_mib + free_mib) * 2**20)
    return int(total_mib * 2**20 * (1 - 0.0043))
