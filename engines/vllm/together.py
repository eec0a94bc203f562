"""What fields of a profile mean together."""

from __future__ import annotations

import re

from engines.vllm.fields import fields
from engines.vllm.notes import Mend, Note, Unreadable, error, gettext_noop, mend, warning
from engines.vllm.spec import ServeSpec, parse_gpus


def check_together(spec: ServeSpec) -> list[Note]:
    values = spec.values
    notes: list[Note] = []
    length, batched = values.get("max_model_len"), values.get("max_num_batched_tokens")
    running = values.get("max_num_seqs")
    if (
        values.get("enable_chunked_prefill") is False
        and isinstance(length, int)
        and batched is not None
        and batched < length
    ):
        notes.append(
            error(
                "batch_below_length",
                gettext_noop(
                    "Without chunked prefill a prompt goes in whole: %(batched)d tokens in a step hold no"
                    " request of %(length)d."
                ),
                remedy=gettext_noop("Raise the tokens in a step to the longest request, or allow chunks."),
                field="max_num_batched_tokens",
                mends=(
                    _set("max_num_batched_tokens", length),
                    mend(gettext_noop("Allow chunks"), {"enable_chunked_prefill": ""}),
                ),
                batched=batched,
                length=length,
            )
        )
    if batched is not None and running is not None and batched < running:
        notes.append(
            error(
                "batch_below_requests",
                gettext_noop(
                    "A step of %(batched)d tokens cannot hold one token for each of %(running)d requests."
                ),
                remedy=gettext_noop("Raise the tokens in a step, or lower the requests at once."),
                field="max_num_batched_tokens",
                mends=(_set("max_num_batched_tokens", running), _set("max_num_seqs", batched)),
                batched=batched,
                running=running,
            )
        )
    share = values.get("gpu_memory_utilization")
    if isinstance(share, float) and 0.95 < share <= 1:
        notes.append(
            warning(
                "share_high",
                gettext_noop("Above 0.95 of the card, peaks run out of memory."),
                remedy=gettext_noop("0.90 is a good start."),
                field="gpu_memory_utilization",
                mends=(_set("gpu_memory_utilization", "0.90"),),
            )
        )
    if values.get("kv_cache_memory_bytes") is not None and share is not None:
        notes.append(
            warning(
                "share_ignored",
                gettext_noop("With the cache's size given, the share of the card does not decide it."),
                field="gpu_memory_utilization",
                mends=(_out("gpu_memory_utilization"), _out("kv_cache_memory_bytes")),
            )
        )
    if values.get("enable_auto_tool_choice") and not values.get("tool_call_parser"):
        notes.append(
            error(
                "parser_missing",
                gettext_noop("Tool calls need a tool parser; vLLM does not start without one."),
                remedy=gettext_noop("Choose the parser of the model's family, for example hermes for Qwen."),
                field="tool_call_parser",
                mends=(*_parser(spec.model), _out("enable_auto_tool_choice")),
            )
        )
    if values.get("tool_call_parser") and not values.get("enable_auto_tool_choice"):
        notes.append(
            warning(
                "parser_unused",
                gettext_noop("The tool parser is used only when tool calls are on."),
                field="tool_call_parser",
                mends=(_on("enable_auto_tool_choice"), _out("tool_call_parser")),
            )
        )
    if values.get("max_loras") is not None and not values.get("enable_lora"):
        notes.append(
            warning(
                "loras_unused",
                gettext_noop("Adapters at once matters only when LoRA adapters are on."),
                field="max_loras",
                mends=(_on("enable_lora"), _out("max_loras")),
            )
        )
    if values.get("trust_remote_code") and not values.get("revision") and "/" in spec.model.strip("/"):
        notes.append(
            warning(
                "code_unpinned",
                gettext_noop("The model's code may change with every download."),
                remedy=gettext_noop("Give a commit as the model revision."),
                field="trust_remote_code",
                mends=(_out("trust_remote_code"),),
            )
        )
    return notes


def check_gpus(spec: ServeSpec) -> list[Note]:
    try:
        gpus = parse_gpus(spec.gpus)
    except Unreadable as problem:
        return [problem.note]
    if not gpus or spec.values.get("distributed_executor_backend") == "ray":
        return []
    if len(gpus) < spec.cards:
        return [
            error(
                "gpus_too_few",
                gettext_noop(
                    "Tensor, pipeline and data parallel take %(cards)d GPUs, and %(gpus)d are named."
                ),
                remedy=gettext_noop("Name as many GPUs, or lower the parallel sizes."),
                field="gpus",
                mends=_as_many(spec, gpus),
                cards=spec.cards,
                gpus=len(gpus),
            )
        ]
    if len(gpus) > spec.cards:
        return [
            warning(
                "gpus_idle",
                gettext_noop("%(gpus)d GPUs are named and %(cards)d are used: the others stay idle."),
                remedy=gettext_noop("Raise tensor parallel, or name fewer."),
                field="gpus",
                mends=(
                    *_as_many(spec, gpus),
                    mend(
                        gettext_noop("Name only %(gpus)s"),
                        {"gpus": ",".join(gpus[: spec.cards])},
                        gpus=",".join(gpus[: spec.cards]),
                    ),
                ),
                cards=spec.cards,
                gpus=len(gpus),
            )
        ]
    return []


#: tool parsers by model family, as vLLM's own documentation names them
_PARSERS = (
    (r"qwen3-coder", "qwen3_coder"),
    (r"qwen|hermes", "hermes"),
    (r"llama-?3", "llama3_json"),
    (r"mistral|mixtral", "mistral"),
    (r"deepseek-v3\.1", "deepseek_v31"),
    (r"deepseek-(v3|r1)", "deepseek_v3"),
    (r"gpt-oss", "openai"),
    (r"kimi-k2", "kimi_k2"),
)


def _parser(model: str) -> tuple[Mend, ...]:
    name = next((name for pattern, name in _PARSERS if re.search(pattern, model.lower())), "")
    return (_set("tool_call_parser", name),) if name else ()


def _set(key: str, value: object) -> Mend:
    flag = fields()[key].flag
    return mend(gettext_noop("Set %(flag)s to %(value)s"), {key: str(value)}, flag=flag, value=value)


def _on(key: str) -> Mend:
    return mend(gettext_noop("Turn %(flag)s on"), {key: "on"}, flag=fields()[key].flag)


def _out(key: str) -> Mend:
    return mend(gettext_noop("Take %(flag)s out"), {key: ""}, flag=fields()[key].flag)


def _as_many(spec: ServeSpec, gpus: list[str]) -> tuple[Mend, ...]:
    """Tensor parallel over the GPUs that are named, where the other sizes leave room for it."""
    others = spec.cards // int(spec.values.get("tensor_parallel_size") or 1)
    size, rest = divmod(len(gpus), others)
    return (_set("tensor_parallel_size", size),) if size and not rest else ()
