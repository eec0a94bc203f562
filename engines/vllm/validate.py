"""A profile's input, read and judged: sentences for each field and for what fields mean together."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engines.vllm.arguments import read_extra
from engines.vllm.fields import Field, Kind, fields, read_value, value_text
from engines.vllm.masking import find_secret
from engines.vllm.notes import Mend, Note, Unreadable, error, errors_of, gettext_noop, info, mend, warning
from engines.vllm.spec import ServeSpec
from engines.vllm.together import check_gpus, check_together
from engines.vllm.variables import check_environment

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
            notes.append(replace(problem.note, mends=_readable(field, raw.get(key))))
            continue
        if value is not None:
            typed[key] = value
    return typed, notes


def _readable(field: Field, raw: Any) -> tuple[Mend, ...]:
    """What somebody may have meant by a value that cannot be read, and no value at all."""
    text = str(raw).strip()
    meant = ""
    if field.kind is Kind.CHOICE:
        meant = next(iter(difflib.get_close_matches(text.lower(), field.choices, n=1)), "")
    elif field.kind in {Kind.INT, Kind.SIZE, Kind.FLOAT}:
        number = re.search(r"\d+(?:[.,]\d+)?", text)
        if number is not None:
            meant = number[0].replace(",", ".")
            meant = meant if field.kind is Kind.FLOAT else meant.partition(".")[0]
    found = [mend(gettext_noop("Write %(new)s"), {field.key: meant}, new=meant)] if meant else []
    return (*found, mend(gettext_noop("Leave it to vLLM"), {field.key: ""}))


def check_spec(spec: ServeSpec) -> list[Note]:
    """Every sentence about a spec whose values have their types. Errors forbid saving it."""
    notes = [*_check_model(spec), *_check_served_names(spec)]
    for key, value in spec.values.items():
        notes += _check_range(fields()[key], value)
        notes += _check_no_secret(fields()[key], value)
    notes += check_together(spec)
    notes += check_gpus(spec)
    notes += check_environment(spec)
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
                mends=_without_site(model),
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


def _without_site(model: str) -> tuple[Mend, ...]:
    found = re.match(r"https?://[^/]+/([\w.-]+/[\w.-]+)", model)
    return (mend(gettext_noop("Write %(new)s"), {"model": found[1]}, new=found[1]),) if found else ()


def _check_served_names(spec: ServeSpec) -> list[Note]:
    notes: list[Note] = []
    for position, name in enumerate(spec.served_names):
        if name.startswith("-") or re.search(r"[\s\x00-\x1f\x7f\ud800-\udfff]", name):
            notes.append(
                error(
                    "served_name_unreadable",
                    gettext_noop("“%(name)s” cannot be a served name: no blanks, and no hyphen in front."),
                    remedy=gettext_noop("Use letters, digits and hyphens, as in qwen3-8b-v1."),
                    field="served_names",
                    mends=_other_names(spec, position, re.sub(r"[^\w.-]+", "-", name).strip("-.")),
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
                    mends=_other_names(spec, position, ""),
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
                remedy=gettext_noop(
                    "A served name of its own, such as qwen3-8b-v1, stays when the model moves elsewhere."
                ),
                field="served_names",
                model=spec.model,
            )
        )
    return notes


def _other_names(spec: ServeSpec, position: int, name: str) -> tuple[Mend, ...]:
    """The served names with another one at this place, or without it."""
    names = [*spec.served_names[:position], *([name] if name else []), *spec.served_names[position + 1 :]]
    text = ", ".join(names)
    return (mend(gettext_noop("Write %(new)s"), {"served_names": text}, new=text),) if text else ()


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
                mends=_bound(field, field.minimum),
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
                mends=_bound(field, field.maximum),
                bound=f"{field.maximum:.0f}",
                **facts,
            )
        ]
    return []


def _bound(field: Field, bound: float) -> tuple[Mend, ...]:
    text = f"{bound:.0f}"
    return (mend(gettext_noop("Write %(new)s"), {field.key: text}, new=text),)


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
