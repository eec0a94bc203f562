"""Sentences about what an operator entered, from pure code.

``message`` and ``remedy`` are message ids (English); whoever shows them translates and fills in
``params``. ``gettext_noop`` only marks a string for the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


def gettext_noop(message: str) -> str:
    return message


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Mend:
    """A change of inputs that settles a note. ``sets`` maps the key of an input to its new text ("" empties
    it); ``label`` is a message id in the imperative, filled in with ``params``."""

    label: str
    sets: Mapping[str, str]
    params: Mapping[str, Any] = field(default_factory=dict)

    def text(self, translate: Callable[[str], str] = str) -> str:
        return translate(self.label) % self.params


def mend(label: str, sets: Mapping[str, str], **params: Any) -> Mend:
    return Mend(label, sets, params)


@dataclass(frozen=True)
class Note:
    """One sentence. ``field`` is the key of the input it belongs to, "" for all of them together."""

    severity: Severity
    code: str
    message: str
    params: Mapping[str, Any] = field(default_factory=dict)
    field: str = ""
    remedy: str = ""
    mends: tuple[Mend, ...] = ()

    def text(self, translate: Callable[[str], str] = str) -> str:
        """The sentence with its remedy, translated and filled in; so is a note within ``params``."""
        params = {
            name: value.text(translate) if isinstance(value, Note) else value
            for name, value in self.params.items()
        }
        parts = [translate(part) % params for part in (self.message, self.remedy) if part]
        return " ".join(parts)


class Unreadable(ValueError):
    """Input that cannot be used at all; ``note`` says why."""

    def __init__(self, note: Note):
        super().__init__(note.text())
        self.note = note


def error(
    code: str, message: str, *, field: str = "", remedy: str = "", mends: Sequence[Mend] = (), **params: Any
) -> Note:
    return Note(Severity.ERROR, code, message, params, field, remedy, tuple(mends))


def warning(
    code: str, message: str, *, field: str = "", remedy: str = "", mends: Sequence[Mend] = (), **params: Any
) -> Note:
    return Note(Severity.WARNING, code, message, params, field, remedy, tuple(mends))


def info(
    code: str, message: str, *, field: str = "", remedy: str = "", mends: Sequence[Mend] = (), **params: Any
) -> Note:
    return Note(Severity.INFO, code, message, params, field, remedy, tuple(mends))


def errors_of(notes: Iterable[Note]) -> list[Note]:
    return [note for note in notes if note.severity is Severity.ERROR]
