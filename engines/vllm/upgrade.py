"""What changes for one profile when the vLLM under it is replaced by another."""

from __future__ import annotations

from dataclasses import dataclass

from engines.vllm.defaults import DECIDED, Default, moved
from engines.vllm.fields import fields_by_flag
from engines.vllm.notes import Note, Severity
from engines.vllm.spec import ServeSpec
from engines.vllm.target import Target, Verdict, judge
from engines.vllm.translate import Line


@dataclass(frozen=True)
class Change:
    """A flag that the new version gets in another way; empty words where one side gets nothing of it."""

    flag: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    note: Note | None


@dataclass(frozen=True)
class Move:
    """A default that moved, of a flag that the profile leaves alone."""

    flag: str
    before: Default
    after: Default


@dataclass(frozen=True)
class Upgrade:
    """``notes`` are the findings that the new version brings and the old one did not have."""

    old: Verdict
    new: Verdict
    changes: tuple[Change, ...]
    moves: tuple[Move, ...]
    notes: tuple[Note, ...]

    @property
    def quiet(self) -> bool:
        return not (self.changes or self.moves or self.notes)


def upgrade(spec: ServeSpec, old: Target, new: Target) -> Upgrade:
    before, after = judge(spec, old), judge(spec, new)
    known = {_key(note) for note in before.notes}
    fresh = tuple(note for note in after.notes if note.severity is Severity.ERROR or _key(note) not in known)
    return Upgrade(before, after, _changes(before, after), _moves(spec, old, new), fresh)


def _key(note: Note) -> tuple[str, str, str]:
    return note.code, note.field, str(note.params.get("flag", ""))


def _changes(before: Verdict, after: Verdict) -> tuple[Change, ...]:
    lefts = {_name(line): line for line in before.translation.lines}
    rights = {_name(line): line for line in after.translation.lines}
    found = []
    for name in dict.fromkeys([*lefts, *rights]):
        left, right = _said(lefts.get(name)), _said(rights.get(name))
        if left != right:
            line = rights.get(name)
            found.append(Change(name, left, right, line.note if line is not None else None))
    return tuple(found)


def _name(line: Line) -> str:
    return (line.written or line.words)[0].partition("=")[0]


def _said(line: Line | None) -> tuple[str, ...]:
    if line is None:
        return ()
    return (*(f"{name}={value}" for name, value in line.variables.items()), *line.words)


def _moves(spec: ServeSpec, old: Target, new: Target) -> tuple[Move, ...]:
    """Defaults of flags that have a field, or about which vLLM decides at start."""
    found = []
    for flag in dict.fromkeys([*fields_by_flag(), *DECIDED]):
        definition = fields_by_flag().get(flag)
        if definition is not None and spec.values.get(definition.key) is not None:
            continue
        if flag in spec.extra_arguments or (flag == "--served-model-name" and spec.served_names):
            continue
        sides = moved(flag, old.release, new.release)
        if sides is not None:
            found.append(Move(flag, *sides))
    return tuple(found)
