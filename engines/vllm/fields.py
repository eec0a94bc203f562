"""What a field of a profile is: a flag of vLLM with its kind, bounds and words. The table of all of
them is ``field_table.py``; which release has a flag, and its default there, come from the catalogue.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from engines.vllm import catalog
from engines.vllm.notes import Unreadable, error, gettext_noop


class Kind(StrEnum):
    INT = "int"
    SIZE = "size"  # an integer that vLLM also takes as 32k (32,000) or 32K (32,768)
    FLOAT = "float"
    BOOL = "bool"
    CHOICE = "choice"
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class Group:
    key: str
    label: str
    help: str


@dataclass(frozen=True)
class Field:
    """``label``, ``help``, ``advice`` and ``unit`` are message ids. A value that is absent is vLLM's
    default. ``minimum`` and ``maximum`` are inclusive, ``above`` is not."""

    key: str
    kind: Kind
    group: str
    label: str
    help: str
    advice: str = ""
    unit: str = ""
    choices: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    placeholder: str = ""
    #: for BOOL: "off" can be said (``--no-enable-x``); otherwise off is what the absence means
    can_turn_off: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def negation(self) -> str:
        return "--no-" + self.key.replace("_", "-")

    @property
    def facts(self) -> catalog.FlagFacts:
        return catalog.all_flags()[self.flag]

    @property
    def first_seen(self) -> str:
        return self.facts.first_seen

    @property
    def last_seen(self) -> str | None:
        """The last release that has the flag; None while the newest one read has it."""
        last = self.facts.last_seen
        return None if last == catalog.newest_release() else last

    @property
    def known_values(self) -> tuple[str, ...]:
        """Values to offer beside free text."""
        return self.suggestions or tuple(str(value) for value in self.facts.known)


@lru_cache(maxsize=1)
def fields() -> Mapping[str, Field]:
    """Every field by its key, in the order of the form."""
    from engines.vllm.field_table import FIELDS

    return {field.key: field for field in FIELDS}


def groups() -> tuple[Group, ...]:
    from engines.vllm.field_table import GROUPS

    return GROUPS


@lru_cache(maxsize=1)
def fields_by_flag() -> Mapping[str, Field]:
    return {field.flag: field for field in fields().values()}


_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_ON = {"on", "true", "yes", "1"}
_OFF = {"off", "false", "no", "0"}


def parse_size(text: str) -> int:
    """32768, 32k = 32,000 or 32K = 32,768, as vLLM reads it. ValueError if it is none of these."""
    text = text.strip()
    match = _SIZE.fullmatch(text)
    if match is None:
        if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
            raise ValueError(text)
        return int(text)
    number, suffix = match.groups()
    if "." in number and suffix.isupper():
        raise ValueError(text)
    return round(float(number) * _SUFFIXES[suffix]) if "." in number else int(number) * _SUFFIXES[suffix]


def read_value(field: Field, raw: Any) -> Any:
    """The value of a field from text or from JSON; None when it is left to vLLM's default.

    Raises Unreadable with a sentence when it is not of the field's kind. Ranges are checked elsewhere.
    """
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return None
    if field.kind is Kind.BOOL:
        return _read_bool(field, raw)
    if isinstance(raw, bool) or (isinstance(raw, dict | list) and field.kind is not Kind.JSON):
        raise _not_readable(field, raw)
    if field.kind is Kind.JSON:
        return _read_json(field, raw)
    text = str(raw).strip()
    lowered = text.lower()
    if lowered in field.words:
        return lowered
    if field.kind is Kind.CHOICE:
        if text not in field.choices:
            raise Unreadable(
                error(
                    "not_a_choice",
                    gettext_noop("%(flag)s has no value “%(value)s”."),
                    remedy=gettext_noop("Choose one of: %(choices)s."),
                    field=field.key,
                    flag=field.flag,
                    value=text,
                    choices=", ".join(field.choices),
                )
            )
        return text
    if field.kind is Kind.TEXT:
        return _read_text(field, text)
    return _read_number(field, raw, text)


def _read_number(field: Field, raw: Any, text: str) -> int | float:
    text = text.replace("_", "").replace(",", "") if re.fullmatch(r"\d{1,3}([,_]\d{3})+", text) else text
    try:
        if field.kind is Kind.SIZE:
            return parse_size(text)
        if field.kind is Kind.INT:
            return int(raw) if isinstance(raw, float) and raw.is_integer() else _plain_int(text)
        number = float(text)
    except (ValueError, OverflowError):
        raise _not_readable(field, raw) from None
    if not math.isfinite(number):
        raise _not_readable(field, raw)
    return number


def _plain_int(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise ValueError(text)
    return int(text)


def _read_bool(field: Field, raw: Any) -> bool | None:
    if isinstance(raw, bool):
        value: bool | None = raw
    else:
        word = str(raw).strip().lower()
        if word in _ON:
            value = True
        elif word in _OFF:
            value = False
        elif word == "default":
            value = None
        else:
            raise _not_readable(field, raw)
    return None if value is False and not field.can_turn_off else value


def _read_json(field: Field, raw: Any) -> Any:
    if not isinstance(raw, str):
        return _check_json(field, raw)
    try:
        return _check_json(field, json.loads(raw, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, Unreadable):
            raise
        position = getattr(problem, "pos", 0) + 1
        raise Unreadable(
            error(
                "not_json",
                gettext_noop("%(flag)s takes JSON, and this is not JSON at character %(position)d."),
                remedy=gettext_noop("Names and texts go in double quotes, for example %(example)s."),
                field=field.key,
                flag=field.flag,
                position=position,
                example=field.placeholder or '{"key": "value"}',
            )
        ) from None


def _check_json(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, dict | list | int) and not isinstance(value, bool):
        return _check_storable(field, value)
    raise Unreadable(
        error(
            "not_json_object",
            gettext_noop("%(flag)s takes a JSON object."),
            remedy=gettext_noop("Write it in braces, for example %(example)s."),
            field=field.key,
            flag=field.flag,
            example=field.placeholder or '{"key": "value"}',
        )
    )


def _check_storable(field: Field, value: Any) -> Any:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError:
        text = "\\u0000"
    if "\\u0000" in text:
        raise _control_character(field)
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def is_surrogate(character: str) -> bool:
    """Half a character: it can be neither stored nor passed on."""
    return "\ud800" <= character <= "\udfff"


def _control_character(field: Field) -> Unreadable:
    return Unreadable(
        error(
            "control_character",
            gettext_noop("%(flag)s holds a control character or a value that cannot be stored."),
            remedy=gettext_noop("Type the value again instead of pasting it."),
            field=field.key,
            flag=field.flag,
        )
    )


def _read_text(field: Field, text: str) -> str:
    if any(
        (ord(character) < 32 and character not in "\n\t") or is_surrogate(character) for character in text
    ):
        raise _control_character(field)
    return text


def _not_readable(field: Field, raw: Any) -> Unreadable:
    messages = {
        Kind.INT: gettext_noop("%(flag)s takes a whole number, for example 64; this is “%(value)s”."),
        Kind.SIZE: gettext_noop(
            "%(flag)s takes a whole number, where 32k is 32,000 and 32K is 32,768; this is “%(value)s”."
        ),
        Kind.FLOAT: gettext_noop("%(flag)s takes a number, for example 0.9; this is “%(value)s”."),
        Kind.BOOL: gettext_noop("%(flag)s is on, off or default; this is “%(value)s”."),
    }
    message = messages.get(field.kind, gettext_noop("%(flag)s takes a text; this is “%(value)s”."))
    return Unreadable(error("not_readable", message, field=field.key, flag=field.flag, value=str(raw)[:80]))


def value_text(value: Any) -> str:
    """A value as text, the way it stands on the command line and in the form ("" for absent)."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    return str(value)
