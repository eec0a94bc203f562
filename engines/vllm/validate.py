"""A profile's input, read and judged: sentences for each field and for what fields mean together."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engines.vllm.arguments import read_extra
from engines.vllm.fields import Field, Kind, fields, read_value, value_text
from engines.vllm.masking import find_secret, is_secret_name
from engines.vllm.notes import Note, Unreadable, error, errors_of, gettext_noop, info, warning
from engines.vllm.spec import ServeSpec, parse_gpus

#: set by kvadmin for every start
RESERVED_VARIABLES = {
    "VLLM_API_KEY": gettext_noop("Leave it out: each engine gets a key of its own."),
    "KVADMIN_START": gettext_noop("Leave it out: kvadmin knows its processes by it."),
    "SPT_NOENV": gettext_noop("Leave it out: kvadmin sets it so that processes stay recognisable."),
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NAME = re.compile(r"[a-z0-9]+([-._][a-z0-9]+)*", re.ASCII)


@dataclass(frozen=True)
class Reading:
    """``spec`` holds what could be read; it may be used only while ``errors`` is empty."""

    spec: ServeSpec
    notes: tuple[Note, ...]

    @property
    def errors(self) -> list[Note]:
        return errors_of(self.notes)

    @property
    def others(self) -> list[Note]:
        """Warnings and what was mended."""
        found = self.errors
        return [note for note in self.notes if note not in found]


def read_spec(
    *,
    model: str,
    served_names: Iterable[str] = (),
    values: Mapping[str, Any] | None = None,
    gpus: str = "",
    environment: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    extra_arguments: str = "",
) -> Reading:
    """Read raw input (texts from a form, JSON from the API) into a spec, with every sentence about it."""
    typed, notes = read_values(values or {})
    spec = ServeSpec(
        model=str(model).strip(),
        served_names=tuple(name.strip() for name in served_names if name.strip()),
        values=typed,
        gpus=gpus.strip(),
        environment=dict(environment or {}),
        secrets=dict(secrets or {}),
        extra_arguments=extra_arguments.replace("\r\n", "\n").replace("\r", "\n").strip(),
    )
    return Reading(spec, (*notes, *check_spec(spec)))


def read_values(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[Note]]:
    """Typed values in the order of the fields (absent ones left out), and what could not be read."""
    typed: dict[str, Any] = {}
    notes: list[Note] = []
    known = fields()
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(str(key), list(known), n=1)
            notes.append(
                error(
                    "unknown_field",
                    gettext_noop("A profile has no field “%(key)s”."),
                    remedy=gettext_noop("Did you mean %(near)s?")
                    if near
                    else gettext_noop("Put flags that have no field into the extra arguments."),
                    field=str(key),
                    key=str(key)[:80],
                    near=near[0] if near else "",
                )
            )
    for key, field in known.items():
        try:
            value = read_value(field, raw.get(key))
        except Unreadable as problem:
            notes.append(problem.note)
            continue
        if value is not None:
            typed[key] = value
    return typed, notes


def check_spec(spec: ServeSpec) -> list[Note]:
    """Every sentence about a spec whose values have their types. Errors forbid saving it."""
    notes = [*_check_model(spec), *_check_served_names(spec)]
    for key, value in spec.values.items():
        notes += _check_range(fields()[key], value)
        notes += _check_no_secret(fields()[key], value)
    notes += _check_together(spec)
    notes += _check_gpus(spec)
    notes += _check_environment(spec)
    notes += read_extra(spec.extra_arguments, spec.values).notes
    return notes


def _check_model(spec: ServeSpec) -> list[Note]:
    model = spec.model
    if not model:
        return [
            error(
                "model_missing",
                gettext_noop("No model is given."),
                remedy=gettext_noop("Write its Hugging Face name (Qwen/Qwen3-8B) or its folder on the host."),
                field="model",
            )
        ]
    if model.startswith("-") or re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", model):
        return [
            error(
                "model_unreadable",
                gettext_noop("“%(model)s” cannot be a model's name or folder."),
                remedy=gettext_noop("Write its Hugging Face name (Qwen/Qwen3-8B) or its folder on the host."),
                field="model",
                model=model[:80],
            )
        ]
    if model.startswith("~"):
        return [
            error(
                "model_tilde",
                gettext_noop("“~” is not expanded: no shell reads the command."),
                remedy=gettext_noop("Write the whole path of the folder on the host."),
                field="model",
            )
        ]
    if re.match(r"https?://", model):
        return [
            error(
                "model_address",
                gettext_noop("vLLM takes no web address as a model."),
                remedy=gettext_noop("Write the part after the site: owner/name."),
                field="model",
            )
        ]
    if " " in model:
        return [
            warning(
                "model_blank",
                gettext_noop("The model's name has a blank in it; it stays part of the name."),
                field="model",
            )
        ]
    return []


def _check_served_names(spec: ServeSpec) -> list[Note]:
    notes: list[Note] = []
    for position, name in enumerate(spec.served_names):
        if name.startswith("-") or re.search(r"[\s\x00-\x1f\x7f\ud800-\udfff]", name):
            notes.append(
                error(
                    "served_name_unreadable",
                    gettext_noop("“%(name)s” cannot be a served name: no blanks, and no hyphen in front."),
                    remedy=gettext_noop("Names carry version and make, for example qwen3-8b-v1."),
                    field="served_names",
                    name=name[:80],
                )
            )
        elif name in spec.served_names[:position]:
            notes.append(
                error(
                    "served_name_twice",
                    gettext_noop("The served name “%(name)s” stands there twice."),
                    remedy=gettext_noop("Keep one."),
                    field="served_names",
                    name=name,
                )
            )
        elif not _NAME.fullmatch(name):
            notes.append(
                info(
                    "served_name_pattern",
                    gettext_noop("Callers have to write “%(name)s” exactly so."),
                    remedy=gettext_noop("Small letters, digits and hyphens are easiest: qwen3-8b-v1."),
                    field="served_names",
                    name=name,
                )
            )
    if not spec.served_names and spec.model:
        notes.append(
            info(
                "served_name_missing",
                gettext_noop("Callers use the model's own name, %(model)s."),
                remedy=gettext_noop("A served name with version and make, like qwen3-8b-v1, outlives it."),
                field="served_names",
                model=spec.model,
            )
        )
    return notes


def _check_range(field: Field, value: Any) -> list[Note]:
    if isinstance(value, bool) or not isinstance(value, int | float) or field.kind is Kind.JSON:
        return []
    facts: dict[str, Any] = {"flag": field.flag, "value": value}
    if field.above is not None and value <= field.above:
        return [
            error(
                "too_small",
                gettext_noop("%(flag)s has to be above %(bound)s; this is %(value)s."),
                field=field.key,
                bound=f"{field.above:g}",
                **facts,
            )
        ]
    if field.minimum is not None and value < field.minimum:
        return [
            error(
                "too_small",
                gettext_noop("%(flag)s has to be at least %(bound)s; this is %(value)s."),
                field=field.key,
                bound=f"{field.minimum:.0f}",
                **facts,
            )
        ]
    if field.maximum is not None and value > field.maximum:
        return [
            error(
                "too_large",
                gettext_noop("%(flag)s has to be at most %(bound)s; this is %(value)s."),
                field=field.key,
                bound=f"{field.maximum:.0f}",
                **facts,
            )
        ]
    return []


def _check_no_secret(field: Field, value: Any) -> list[Note]:
    if field.kind not in {Kind.TEXT, Kind.JSON} or not find_secret(value_text(value)):
        return []
    return [
        error(
            "secret_argument",
            gettext_noop(
                "%(flag)s would put a secret on the command line, where every user of the host sees it."
            ),
            remedy=gettext_noop("Put it into a secret environment variable, for example HF_TOKEN."),
            field=field.key,
            flag=field.flag,
        )
    ]


def _check_together(spec: ServeSpec) -> list[Note]:
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
            )
        )
    if values.get("kv_cache_memory_bytes") is not None and share is not None:
        notes.append(
            warning(
                "share_ignored",
                gettext_noop("With the cache's size given, the share of the card does not decide it."),
                field="gpu_memory_utilization",
            )
        )
    if values.get("enable_auto_tool_choice") and not values.get("tool_call_parser"):
        notes.append(
            error(
                "parser_missing",
                gettext_noop("Tool calls need a tool parser; vLLM does not start without one."),
                remedy=gettext_noop("Choose the parser of the model's family, for example hermes for Qwen."),
                field="tool_call_parser",
            )
        )
    if values.get("tool_call_parser") and not values.get("enable_auto_tool_choice"):
        notes.append(
            warning(
                "parser_unused",
                gettext_noop("The tool parser is used only when tool calls are on."),
                field="tool_call_parser",
            )
        )
    if values.get("max_loras") is not None and not values.get("enable_lora"):
        notes.append(
            warning(
                "loras_unused",
                gettext_noop("Adapters at once matters only when LoRA adapters are on."),
                field="max_loras",
            )
        )
    if values.get("trust_remote_code") and not values.get("revision") and "/" in spec.model.strip("/"):
        notes.append(
            warning(
                "code_unpinned",
                gettext_noop("The model's code may change with every download."),
                remedy=gettext_noop("Give a commit as the model revision."),
                field="trust_remote_code",
            )
        )
    return notes


def _check_gpus(spec: ServeSpec) -> list[Note]:
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
                cards=spec.cards,
                gpus=len(gpus),
            )
        ]
    return []


def _check_environment(spec: ServeSpec) -> list[Note]:
    notes: list[Note] = []
    for name, value in [*spec.environment.items(), *spec.secrets.items()]:
        notes += _check_variable(spec, name, value)
    for name in spec.environment.keys() & spec.secrets.keys():
        notes.append(
            error(
                "variable_twice",
                gettext_noop("%(name)s stands there twice."),
                remedy=gettext_noop("Keep one."),
                field="environment",
                name=name,
            )
        )
    return notes


def _check_variable(spec: ServeSpec, name: str, value: str) -> list[Note]:
    if not _VARIABLE.fullmatch(name):
        return [
            error(
                "variable_name",
                gettext_noop("“%(name)s” cannot be a variable's name."),
                remedy=gettext_noop(
                    "Letters, digits and underscores, no digit in front: VLLM_LOGGING_LEVEL."
                ),
                field="environment",
                name=name[:80],
            )
        ]
    if name in RESERVED_VARIABLES or name.startswith("KVADMIN_"):
        return [
            error(
                "variable_reserved",
                gettext_noop("%(name)s is set by kvadmin."),
                remedy=RESERVED_VARIABLES.get(name, RESERVED_VARIABLES["KVADMIN_START"]),
                field="environment",
                name=name,
            )
        ]
    if re.search(r"[\x00-\x08\n\r\x0b-\x1f\ud800-\udfff]", value):
        return [
            error(
                "variable_value",
                gettext_noop("The value of %(name)s holds a line break or a control character."),
                remedy=gettext_noop("Write it on one line."),
                field="environment",
                name=name,
            )
        ]
    if name == "CUDA_VISIBLE_DEVICES" and spec.gpus:
        return [
            error(
                "variable_gpus",
                gettext_noop("CUDA_VISIBLE_DEVICES follows from the GPUs to use."),
                remedy=gettext_noop("Keep one of the two."),
                field="environment",
                name=name,
            )
        ]
    return _warn_variable(spec, name, value)


def _warn_variable(spec: ServeSpec, name: str, value: str) -> list[Note]:
    warnings = {
        "CUDA_VISIBLE_DEVICES": gettext_noop("The field for GPUs does the same, and checks their number."),
        "LD_PRELOAD": gettext_noop("LD_PRELOAD loads other code into every process of the engine."),
        "PROMETHEUS_MULTIPROC_DIR": gettext_noop(
            "A folder for metrics of one's own has to be emptied before each start, or old values stay."
        ),
        "VLLM_PORT": gettext_noop("VLLM_PORT is for vLLM's inner connections, not for callers."),
    }
    notes = [warning("variable_doubtful", warnings[name], field="environment")] if name in warnings else []
    if name in spec.environment and (is_secret_name(name) or find_secret(value)):
        notes.append(
            error(
                "variable_open_secret",
                gettext_noop("%(name)s looks like a secret and would be stored as plain text."),
                remedy=gettext_noop("Mark it as secret: its value is then encrypted and never shown."),
                field="environment",
                name=name,
            )
        )
    return notes
