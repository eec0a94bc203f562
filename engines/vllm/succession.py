"""What became of flags that a release no longer has, or does not have yet: data, from vLLM's own changes.

``GONE``: taken out without a successor; leaving them out loses nothing. ``RENAMED``: the same under another
name. ``INTO_JSON``: now a key of a JSON flag. What needs more than a table is in ``translate.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines.vllm.notes import gettext_noop

_V0_ONLY = gettext_noop("It belonged to vLLM's old engine and has no effect in the present one.")
_NO_EFFECT = gettext_noop("It had no effect any more.")

GONE: Mapping[str, str] = {
    "--swap-space": gettext_noop(
        "The present engine swaps nothing to the host's memory: it recomputes what it had to give up."
    ),
    "--preemption-mode": gettext_noop("The present engine always recomputes what it had to give up."),
    "--num-scheduler-steps": _V0_ONLY,
    "--multi-step-stream-outputs": _V0_ONLY,
    "--num-lookahead-slots": _V0_ONLY,
    "--scheduler-delay-factor": _V0_ONLY,
    "--disable-async-output-proc": _V0_ONLY,
    "--disable-frontend-multiprocessing": _V0_ONLY,
    "--use-v2-block-manager": _NO_EFFECT,
    "--max-seq-len-to-capture": gettext_noop("CUDA graphs are now captured by batch size, not by length."),
    "--max-context-len-to-capture": gettext_noop(
        "CUDA graphs are now captured by batch size, not by length."
    ),
    "--tokenizer-pool-size": _NO_EFFECT,
    "--tokenizer-pool-type": _NO_EFFECT,
    "--tokenizer-pool-extra-config": _NO_EFFECT,
    "--qlora-adapter-name-or-path": _NO_EFFECT,
    "--device": gettext_noop("vLLM finds the device by itself."),
    "--enable-reasoning": gettext_noop("The reasoning parser alone turns reasoning on."),
    "--calculate-kv-scales": gettext_noop("vLLM no longer computes scales of an fp8 cache while it runs."),
    "--expand-tools-even-if-tool-choice-none": gettext_noop(
        "What it prepared for is now always so, unless --exclude-tools-when-tool-choice-none is given."
    ),
    "--max-num-partial-prefills": _V0_ONLY,
    "--max-long-partial-prefills": _V0_ONLY,
    "--long-lora-scaling-factors": _V0_ONLY,
    "--lora-extra-vocab-size": gettext_noop("Adapters no longer bring words of their own."),
    "--speculative-disable-mqa-scorer": _V0_ONLY,
    "--spec-decoding-acceptance-method": _V0_ONLY,
    "--typical-acceptance-sampler-posterior-alpha": _V0_ONLY,
    "--typical-acceptance-sampler-posterior-threshold": _V0_ONLY,
    "--disable-logprobs-during-spec-decoding": _V0_ONLY,
    "--enable-bf16x3-router-gemm": gettext_noop("It was an experiment and has ended."),
}

#: old name -> new name; the value stays
RENAMED: Mapping[str, str] = {
    "--cuda-graph-sizes": "--cudagraph-capture-sizes",
    "--override-pooler-config": "--pooler-config",
    "--use-gpu-for-pooling-score": "--enable-flash-late-interaction",
    "--enable-mamba-fine-grained-prefix-cache": "--enable-mamba-shared-prefix-checkpoint",
}

#: old flag -> (new words); for flags without a value
REPLACED: Mapping[str, tuple[str, ...]] = {
    "--worker-use-ray": ("--distributed-executor-backend", "ray"),
    "--disable-mm-preprocessor-cache": ("--mm-processor-cache-gb", "0"),
    "--enable-multimodal-encoder-data-parallel": ("--mm-encoder-tp-mode", "data"),
}

#: old flag -> (JSON flag, key in it)
INTO_JSON: Mapping[str, tuple[str, str]] = {
    "--eplb-window-size": ("--eplb-config", "window_size"),
    "--eplb-step-interval": ("--eplb-config", "step_interval"),
    "--num-redundant-experts": ("--eplb-config", "num_redundant_experts"),
    "--eplb-log-balancedness": ("--eplb-config", "log_balancedness"),
    "--guided-decoding-backend": ("--structured-outputs-config", "backend"),
    "--guided-decoding-disable-fallback": ("--structured-outputs-config", "disable_fallback"),
    "--guided-decoding-disable-any-whitespace": ("--structured-outputs-config", "disable_any_whitespace"),
    "--guided-decoding-disable-additional-properties": (
        "--structured-outputs-config",
        "disable_additional_properties",
    ),
    "--rope-scaling": ("--hf-overrides", "rope_scaling"),
    "--speculative-model": ("--speculative-config", "model"),
    "--num-speculative-tokens": ("--speculative-config", "num_speculative_tokens"),
    "--speculative-draft-tensor-parallel-size": ("--speculative-config", "draft_tensor_parallel_size"),
    "--speculative-max-model-len": ("--speculative-config", "max_model_len"),
    "--speculative-model-quantization": ("--speculative-config", "quantization"),
    "--speculative-disable-by-batch-size": ("--speculative-config", "disable_by_batch_size"),
    "--ngram-prompt-lookup-max": ("--speculative-config", "prompt_lookup_max"),
    "--ngram-prompt-lookup-min": ("--speculative-config", "prompt_lookup_min"),
}

#: flags without a successor that could be written here, and what to do instead
REMEDIES: Mapping[str, str] = {
    "--rope-theta": gettext_noop(
        "Write it into the model configuration (--hf-overrides), as rope_theta under rope_parameters."
    ),
    "--quantization-param-path": gettext_noop("Use a checkpoint that carries its cache scales."),
    "--kv-cache-memory-bytes": gettext_noop("Set the share of the card instead."),
    "--speculative-config": gettext_noop("Use vLLM 0.8.3 or later, or leave speculation out."),
}

#: --task of old -> the words that say it since
TASKS: Mapping[str, tuple[str, ...]] = {
    "auto": (),
    "generate": ("--runner", "generate"),
    "transcription": ("--runner", "generate"),
    "draft": ("--runner", "draft"),
    "embed": ("--runner", "pooling", "--convert", "embed"),
    "embedding": ("--runner", "pooling", "--convert", "embed"),
    "classify": ("--runner", "pooling", "--convert", "classify"),
    "score": ("--runner", "pooling", "--convert", "classify"),
    "reward": ("--runner", "pooling"),
}

#: methods of --quantization by the first release that was read without them
QUANTIZATION_GONE: Mapping[str, str] = {"gguf": "0.24.0", "bitsandbytes": "0.28.0"}


def successor(flag: str) -> str:
    """The flag that says now what ``flag`` said, "" if none is known."""
    if flag in RENAMED:
        return RENAMED[flag]
    if flag in REPLACED:
        return REPLACED[flag][0]
    if flag in INTO_JSON:
        return INTO_JSON[flag][0]
    return {"--task": "--runner", "--disable-log-requests": "--enable-log-requests"}.get(flag, "")


def json_value(flag: str, values: tuple[str, ...]) -> Any:
    """A value of an old flag as the JSON key takes it."""
    text = values[-1] if values else "true"
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
