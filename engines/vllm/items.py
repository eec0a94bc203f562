"""A profile's flags one by one, from its fields and from its extra arguments alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engines.vllm.arguments import Argument, read_arguments
from engines.vllm.fields import Field, Kind, fields, value_text
from engines.vllm.masking import is_secret_name
from engines.vllm.shellwords import split_words
from engines.vllm.spec import ServeSpec


@dataclass(frozen=True)
class Item:
    """A flag of the profile: of a field, or of the extra arguments (then with its Argument)."""

    flag: str
    written: str
    off: bool
    values: tuple[str, ...]
    words: tuple[str, ...]
    key: str
    argument: Argument | None = None

    @property
    def value(self) -> str:
        return self.values[-1] if self.values else ""


def items_of(spec: ServeSpec) -> list[Item]:
    return [*_of_fields(spec), *_of_extra(spec)]


def _of_fields(spec: ServeSpec) -> list[Item]:
    found = []
    for key, definition in fields().items():
        words = field_words(definition, spec.values.get(key))
        if not words:
            continue
        off = definition.kind is Kind.BOOL and spec.values[key] is False
        name, _, attached = words[0].partition("=")
        values = (attached,) if attached else tuple(words[1:])
        found.append(Item(definition.flag, name, off, values, tuple(words), key))
    return found


def field_words(definition: Field, value: Any) -> list[str]:
    """A field's value as the newest release takes it; nothing for vLLM's default."""
    if value is None:
        return []
    if definition.kind is Kind.BOOL:
        if value:
            return [definition.flag]
        return [definition.negation] if definition.can_turn_off else []
    text = value_text(value)
    # a value that begins with a hyphen would be taken for a flag
    return [f"{definition.flag}={text}"] if text.startswith("-") else [definition.flag, text]


def _of_extra(spec: ServeSpec) -> list[Item]:
    if not spec.extra_arguments.strip():
        return []
    found = []
    for argument in read_arguments(split_words(spec.extra_arguments).texts):
        if is_secret_name(argument.written):
            continue
        found.append(
            Item(
                argument.flag,
                argument.written,
                argument.off,
                argument.values,
                argument.words,
                "extra_arguments",
                argument,
            )
        )
    return found
