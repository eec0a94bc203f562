"""Sentences that are stored, and shown to each reader in the reader's own language.

A background task speaks to nobody in particular: what it says is kept as message ids with their values
and put into words when it is read. ``from kvadmin.sentences import gettext as _`` in a module whose
sentences are stored; they are strings for everybody else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from django.db import models
from django.utils import translation

#: plain text, or {"t": message id, "n": plural, "c": count, "p": values}
Part: TypeAlias = str | dict[str, Any]

#: begins a stored sentence; plain text that begins so is stored without it
_MARK = "\x1e"


class Sentence(str):
    """Text in the language of the moment that remembers what it was made of.

    ``%`` with a mapping fills values in, which may be sentences, and ``+`` joins; whatever else is done
    with it gives plain text.
    """

    parts: tuple[Part, ...]

    def __new__(cls, *parts: Part) -> Sentence:
        made = super().__new__(cls, "".join(_rendered(part) for part in parts))
        made.parts = parts
        return made

    def __getnewargs__(self) -> tuple[Part, ...]:  # type: ignore[override]
        return self.parts

    def __mod__(self, values: Any) -> str:
        last = self.parts[-1] if len(self.parts) == 1 else None
        if not isinstance(last, dict) or not isinstance(values, Mapping):
            return super().__mod__(values)
        return Sentence({**last, "p": {name: _kept(value) for name, value in values.items()}})

    def __add__(self, other: str) -> Sentence:
        return Sentence(*self.parts, *_parts(other))

    def __radd__(self, other: str) -> Sentence:
        return Sentence(*_parts(other), *self.parts)


def _parts(text: str) -> tuple[Part, ...]:
    return text.parts if isinstance(text, Sentence) else (str(text),)


def _kept(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, Sentence):
        return {"s": list(value.parts)}
    return value if isinstance(value, int | float) or value is None else str(value)


def _filled(value: Any) -> Any:
    return "".join(_rendered(part) for part in value["s"]) if isinstance(value, dict) else value


def _rendered(part: Part) -> str:
    if isinstance(part, str):
        return part
    source = part["t"]
    if "n" in part:
        source = part["t"] if part["c"] == 1 else part["n"]
        text = translation.ngettext(part["t"], part["n"], part["c"])
    else:
        text = translation.gettext(part["t"])
    if "p" not in part:
        return text
    values = {name: _filled(value) for name, value in part["p"].items()}
    try:
        return text % values
    except (KeyError, TypeError, ValueError):
        # a translation that does not fit what an older version stored
        return source % values


def gettext(message: str) -> Sentence:
    return Sentence({"t": message})


def ngettext(singular: str, plural: str, number: int) -> Sentence:
    return Sentence({"t": singular, "n": plural, "c": number})


def joined(*texts: str) -> str:
    """The texts that are not empty, with blanks between."""
    whole: str = ""
    for text in texts:
        if text:
            whole = whole + " " + text if whole else text
    return whole


def pack(text: str) -> str:
    """What to store for a text, in JSON for example."""
    if isinstance(text, Sentence):
        return _MARK + json.dumps(text.parts, ensure_ascii=False)
    return text.lstrip(_MARK)


def unpack(stored: str) -> str:
    """A stored text in the language of the moment."""
    if not stored.startswith(_MARK):
        return stored
    return Sentence(*json.loads(stored[1:]))


class SentenceField(models.TextField):
    """Text for people. A Sentence comes back in the language that is active when the row is loaded."""

    def get_prep_value(self, value: Any) -> Any:
        return pack(value) if isinstance(value, str) else super().get_prep_value(value)

    def from_db_value(self, value: str | None, expression: object, connection: object) -> str | None:
        return unpack(value) if value else value
