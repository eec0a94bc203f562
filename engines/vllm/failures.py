"""What a person is told about a failed start: the cause in a sentence, and what to change."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_noop

from engines.vllm import log
from kvadmin.sentences import gettext as _

#: pattern -> (sentence, remedy); both may name the pattern's groups
_WORDS: dict[str, tuple[str, str]] = {
    "unrecognized_args": (
        gettext_noop("This vLLM version does not know these arguments: %(args)s"),
        gettext_noop("Take them out of the profile, or choose a vLLM version that has them."),
    ),
    "invalid_choice": (
        gettext_noop("This vLLM version does not take %(val)s for %(arg)s"),
        gettext_noop("Choose one of the values that the log lists."),
    ),
    "invalid_value": (
        gettext_noop("The value of %(arg)s is not valid"),
        gettext_noop("Correct it in the profile."),
    ),
    "no_cache_memory": (
        gettext_noop("No GPU memory was left for the KV cache after the weights."),
        gettext_noop(
            "Raise the GPU memory utilization, use more GPUs, choose a quantized model or lower the "
            "batched tokens."
        ),
    ),
    "kv_too_small": (
        gettext_noop(
            "One request of %(len)s tokens needs %(need)s GiB of KV cache, and %(have)s GiB are available."
        ),
        gettext_noop(
            "Lower the maximum model length, raise the GPU memory utilization or use a smaller cache type."
        ),
    ),
    "kv_too_small_v0": (
        gettext_noop("The maximum model length (%(len)s) is more than the KV cache holds (%(have)s tokens)."),
        gettext_noop("Lower the maximum model length or raise the GPU memory utilization."),
    ),
    "free_memory_low": (
        gettext_noop("The GPU has %(free)s GiB free, and %(want)s GiB were asked for."),
        gettext_noop("End what else uses the GPU, or lower the GPU memory utilization."),
    ),
    "cuda_oom": (
        gettext_noop("The GPU ran out of memory."),
        gettext_noop("Lower the requests at once, the batched tokens or the GPU memory utilization."),
    ),
    "oom_load": (
        gettext_noop("The weights do not fit into the GPU's memory."),
        gettext_noop("Use more GPUs (tensor parallel) or a quantized model."),
    ),
    "oom_sampler": (
        gettext_noop("The GPU ran out of memory while warming up for %(n)s requests at once."),
        gettext_noop("Lower the requests at once (max-num-seqs)."),
    ),
    "oom_killer": (
        gettext_noop("The host ran out of memory and its kernel killed a process."),
        gettext_noop("Give the host more memory, or start less on it."),
    ),
    "shm_small": (
        gettext_noop("Shared memory (/dev/shm) is too small."),
        gettext_noop("Make /dev/shm larger on the host."),
    ),
    "swap_too_large": (
        gettext_noop("The swap space asked for is most of the host's memory."),
        gettext_noop("Lower or remove swap-space."),
    ),
    "model_len_too_large": (
        gettext_noop("The maximum model length %(want)s is more than the model supports (%(max)s)."),
        gettext_noop("Lower the maximum model length to the model's own limit."),
    ),
    "heads_not_divisible": (
        gettext_noop("The model's %(h)s attention heads cannot be split over %(tp)s GPUs."),
        gettext_noop("Choose a tensor parallel size that divides the number of heads."),
    ),
    "tp_gt_gpus": (
        gettext_noop("The profile asks for more GPUs than vLLM can see."),
        gettext_noop("Lower tensor or pipeline parallel, or choose more GPUs in the profile."),
    ),
    "model_path_missing": (
        gettext_noop("There is no model at %(m)s."),
        gettext_noop("Correct the model's path, or copy the model to the host."),
    ),
    "repo_invalid_vllm": (
        gettext_noop("%(m)s is neither a folder with a model nor a repository that can be read."),
        gettext_noop("Check the name, the path, and the access token if the model is private."),
    ),
    "repo_gated": (
        gettext_noop("The model is gated and this host has no access to it."),
        gettext_noop("Accept its licence and put an access token (HF_TOKEN) into the profile's secrets."),
    ),
    "hf_offline": (
        gettext_noop("The model is not on the host and could not be downloaded."),
        gettext_noop("Copy the model to the host, or give the host a way to the model hub."),
    ),
    "no_weights": (
        gettext_noop("The model's folder holds no weights."),
        gettext_noop("Copy the weight files there."),
    ),
    "arch_unsupported": (
        gettext_noop("This vLLM version does not support the model's architecture %(a)s."),
        gettext_noop("Choose another vLLM version."),
    ),
    "transformers_unknown_type": (
        gettext_noop("The installed transformers library does not know this model's type."),
        gettext_noop("Choose a newer vLLM version."),
    ),
    "trust_remote_code_vllm": (
        gettext_noop("The model brings its own code, which vLLM runs only when told to."),
        gettext_noop("Review that code, then add --trust-remote-code to the extra arguments."),
    ),
    "trust_remote_code_hf": (
        gettext_noop("The model brings its own code, which vLLM runs only when told to."),
        gettext_noop("Review that code, then add --trust-remote-code to the extra arguments."),
    ),
    "disk_full": (
        gettext_noop("A disk on the host is full."),
        gettext_noop("Free space on it, or put the model cache on another disk."),
    ),
    "port_in_use": (
        gettext_noop("The port is used by another program."),
        gettext_noop("End that program, or give the engine another port."),
    ),
    "device_infer": (
        gettext_noop("vLLM found no GPU it can use."),
        gettext_noop("Check nvidia-smi on the host, and that this vLLM build is for its GPUs."),
    ),
    "driver_old": (
        gettext_noop("The host's NVIDIA driver is older than this vLLM needs."),
        gettext_noop("Update the driver, or provision a vLLM version built for an older CUDA."),
    ),
    "no_cuda": (
        gettext_noop("vLLM found no NVIDIA driver or no GPU."),
        gettext_noop("Check the driver on the host with nvidia-smi."),
    ),
    "quant_unknown": (
        gettext_noop("This vLLM version does not know the quantization method %(q)s."),
        gettext_noop("Choose a method that this version supports."),
    ),
    "kv_dtype_invalid": (
        gettext_noop("This vLLM version does not know the KV cache type."),
        gettext_noop("Choose another KV cache type in the profile."),
    ),
}


def explain(cause: log.Cause, exit_status: int | None) -> tuple[str, str, str]:
    """(code, sentence, remedy) for a cause from ``log.cause`` and the exit status, if known."""
    remedy = _("Look at the last lines of the log.")
    if cause.id in _WORDS:
        sentence, known_remedy = _WORDS[cause.id]
        try:
            return cause.id, _(sentence) % cause.found, _(known_remedy)
        except KeyError:
            return cause.id, cause.line, _(known_remedy)
    if exit_status == 137 and cause.id in log.SUMMARIES | {"unknown"}:
        return (
            "killed",
            _("The process was killed from outside (exit status 137)."),
            _("Most often the host ran out of memory: look at its kernel log (dmesg)."),
        )
    if cause.line:
        known = log.pattern(cause.id)
        return cause.id, cause.line, (known.fix if known and known.fix else remedy)
    if exit_status is None:
        return "process_gone", _("The process ended and left no exit status: it was killed."), remedy
    return "exited", _("vLLM ended with exit status %(status)s.") % {"status": exit_status}, remedy


def phase_text(facts: dict[str, Any]) -> str:
    """Where a start stands, in words."""
    done, total = facts.get("done"), facts.get("total")
    if done is not None and total:
        counted = {
            "download": _("Downloading the model: %(done)d of %(total)d files"),
            "weights": _("Loading weights: %(done)d of %(total)d files"),
            "graphs": _("Capturing CUDA graphs: %(done)d of %(total)d"),
        }.get(facts.get("phase", ""))
        if counted:
            return counted % {"done": done, "total": total}
    return {
        "configure": _("Reading the model's configuration"),
        "download": _("Downloading the model"),
        "engine": _("Starting the engine's processes"),
        "weights": _("Loading weights"),
        "compile": _("Weights are loaded; compiling and profiling"),
        "cache": _("Setting up the KV cache"),
        "graphs": _("Warming up"),
        "server": _("Opening the HTTP server"),
        "ready": _("The server accepts requests"),
    }.get(facts.get("phase", ""), _("vLLM is starting"))
