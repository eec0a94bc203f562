"""What flags mean, in our own words: those with a field by the field's, and others that operators set."""

from __future__ import annotations

from collections.abc import Mapping

from engines.vllm.fields import fields_by_flag
from engines.vllm.notes import gettext_noop

OTHERS: Mapping[str, str] = {
    "--host": gettext_noop("Address the server listens on; an engine's own setting."),
    "--port": gettext_noop("Port the server listens on; an engine's own setting."),
    "--uds": gettext_noop("Listens on a UNIX socket instead of an address."),
    "--api-key": gettext_noop("Keys that callers must show under /v1; kvadmin gives each engine its own."),
    "--served-model-name": gettext_noop("Names that callers use; the profile's served names."),
    "--root-path": gettext_noop("Path under which a proxy publishes the server."),
    "--config": gettext_noop("Reads flags from a YAML file on the host; kvadmin does not see them."),
    "--api-server-count": gettext_noop("Processes that read requests and write answers for one engine."),
    "--allowed-origins": gettext_noop("Web pages whose scripts may call the server directly."),
    "--middleware": gettext_noop("Python code of your own around each request."),
    "--lora-modules": gettext_noop("Adapters that are there from the start, as name=path."),
    "--max-lora-rank": gettext_noop("Largest rank of an adapter; memory is set aside for it."),
    "--max-cpu-loras": gettext_noop("Adapters kept in the host's memory for quick exchange."),
    "--prefill-context-parallel-size": gettext_noop("GPUs that share the tokens of one long prompt."),
    "--decode-context-parallel-size": gettext_noop(
        "GPUs of a tensor parallel group that share the cache of one request by tokens."
    ),
    "--nnodes": gettext_noop("Hosts that one engine spreads over."),
    "--data-parallel-size-local": gettext_noop("Copies of the model on this host, of all there are."),
    "--data-parallel-backend": gettext_noop("What starts the copies: processes or Ray."),
    "--enable-eplb": gettext_noop("Copies busy experts to idle GPUs while the engine runs."),
    "--eplb-config": gettext_noop("How often and how far experts are moved between GPUs."),
    "--kv-cache-dtype-skip-layers": gettext_noop("Layers whose cache keeps the model's own type."),
    "--calculate-kv-scales": gettext_noop("Found the scales of an fp8 cache while running."),
    "--kv-offloading-size": gettext_noop("GiB of host memory that take cache pages the GPU gives up."),
    "--kv-offloading-backend": gettext_noop("What moves cache pages to the host's memory."),
    "--kv-transfer-config": gettext_noop("Hands caches from a prefilling engine to a decoding one."),
    "--max-num-queued-reqs": gettext_noop("Waiting requests beyond which new ones get status 503."),
    "--long-prefill-token-threshold": gettext_noop("Length from which a prompt counts as long."),
    "--stream-interval": gettext_noop("Tokens that are gathered before a stream sends them."),
    "--disable-hybrid-kv-cache-manager": gettext_noop(
        "Keeps every layer's whole cache, also where a sliding window would let go of it."
    ),
    "--mamba-block-size": gettext_noop("Tokens between two kept states of a state layer."),
    "--mamba-cache-mode": gettext_noop("Which states of a state layer are kept for equal prefixes."),
    "--moe-backend": gettext_noop("Which kernels compute the experts."),
    "--optimization-level": gettext_noop("How much is compiled: 0 starts soonest, 3 runs fastest."),
    "--performance-mode": gettext_noop("Defaults for quick answers, for many at once, or in between."),
    "--cudagraph-capture-sizes": gettext_noop("Batch sizes for which CUDA graphs are recorded."),
    "--disable-custom-all-reduce": gettext_noop("Uses NCCL alone for sums over GPUs; slower, and safer."),
    "--mm-processor-cache-gb": gettext_noop("Host memory for images that were prepared before."),
    "--mm-encoder-tp-mode": gettext_noop("Splits the vision tower over GPUs by weights or by pictures."),
    "--language-model-only": gettext_noop("Leaves out vision and sound: less memory, text only."),
    "--structured-outputs-config": gettext_noop("Which library keeps answers to a grammar, and how."),
    "--default-chat-template-kwargs": gettext_noop("Values for the chat template that no request gave."),
    "--exclude-tools-when-tool-choice-none": gettext_noop("Hides tools from prompts that may not use them."),
    "--enable-prompt-tokens-details": gettext_noop("Usage says how many prompt tokens came from the cache."),
    "--enable-force-include-usage": gettext_noop("Every stream ends with its usage."),
    "--enable-server-load-tracking": gettext_noop("Counts requests under way for /load."),
    "--disable-log-stats": gettext_noop("Takes away the metrics; kvadmin then sees nothing."),
    "--disable-uvicorn-access-log": gettext_noop("Writes no line for each request into the log."),
    "--show-hidden-metrics-for-version": gettext_noop("Brings back metrics that a release has hidden."),
    "--kv-cache-metrics": gettext_noop("Measures how long cache pages live; costs a little."),
    "--shutdown-timeout": gettext_noop("Seconds that running requests get when the engine is stopped."),
    "--additional-config": gettext_noop("Settings for a platform plugin."),
    "--spec-method": gettext_noop("How tokens are guessed ahead."),
    "--spec-model": gettext_noop("The small model that guesses ahead."),
    "--spec-tokens": gettext_noop("How many tokens are guessed ahead."),
    "--convert": gettext_noop("Makes a generating model answer with vectors, classes or scores."),
    "--pooler-config": gettext_noop("How token vectors become one vector."),
    "--task": gettext_noop("What the model was to do, before --runner and --convert."),
    "--device": gettext_noop("The kind of device, before vLLM found it by itself."),
    "--rope-scaling": gettext_noop("Stretched positions beyond the trained length."),
    "--rope-theta": gettext_noop("The base of rotary positions."),
    "--guided-decoding-backend": gettext_noop("Which library kept answers to a grammar."),
    "--enable-reasoning": gettext_noop("Turned on the reasoning parser."),
    "--num-scheduler-steps": gettext_noop("Steps between two looks at the queue, in the old engine."),
    "--preemption-mode": gettext_noop("What the old engine did with pages it had to take away."),
}


def meaning_of(flag: str) -> str:
    """A message id, "" if nobody has put it into words."""
    field = fields_by_flag().get(flag)
    return field.help if field is not None else OTHERS.get(flag, "")
