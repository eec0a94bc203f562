"""Profiles in words: what a spec says row by row, what changed between two, what a field offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils.translation import gettext as _

from engines.models import Engine, Host, Revision
from engines.views.profiles.checked import Fix, default_words, fixes_of
from engines.views.profiles.draft import Draft
from engines.vllm.command import display_command, masked_extra
from engines.vllm.defaults import default_of
from engines.vllm.fields import Field, Kind, fields, groups, value_text
from engines.vllm.masking import MASK, mask_environment
from engines.vllm.notes import Note, Severity, Unreadable
from engines.vllm.releases import Release
from engines.vllm.spec import ServeSpec


@dataclass(frozen=True)
class Said:
    """A sentence beside a field, with its tone."""

    text: str
    tone: str  # bad, warn, info
    fixes: list[Fix] = field(default_factory=list)

    @property
    def css(self) -> str:
        return {"bad": "text-bad", "warn": "text-warn"}.get(self.tone, "muted")

    @property
    def is_error(self) -> bool:
        return self.tone == "bad"


_TONES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFO: "info"}


def said(notes: Iterable[Note]) -> dict[str, list[Said]]:
    """Sentences in the reader's language by the key of their field."""
    found: dict[str, list[Said]] = {}
    for note in notes:
        found.setdefault(note.field, []).append(Said(note.text(_), _TONES[note.severity], fixes_of(note)))
    return found


@dataclass(frozen=True)
class Control:
    """One field of the form with what has been typed and said."""

    field: Field
    value: str
    notes: list[Said]
    release: Release

    @property
    def key(self) -> str:
        return self.field.key

    @property
    def label(self) -> str:
        return _(self.field.label)

    @property
    def help(self) -> str:
        return _(self.field.help)

    @property
    def advice(self) -> str:
        return _(self.field.advice) if self.field.advice else ""

    @property
    def unit(self) -> str:
        return _(self.field.unit) if self.field.unit else ""

    @property
    def invalid(self) -> bool:
        return any(note.is_error for note in self.notes)

    @property
    def widget(self) -> str:
        if self.field.kind is Kind.JSON or self.field.key == "chat_template":
            return "area"
        return "select" if self.options else "input"

    @property
    def numeric(self) -> bool:
        return self.field.kind in {Kind.INT, Kind.FLOAT}

    @property
    def options(self) -> list[tuple[str, str]]:
        """(value, label) of a closed choice; what was typed stays among them."""
        if self.field.kind is Kind.BOOL:
            found = [("", _("Default")), ("on", _("On"))] if self.field.can_turn_off else [("", _("Off"))]
            found += [("off", _("Off"))] if self.field.can_turn_off else [("on", _("On"))]
        elif self.field.kind is Kind.CHOICE:
            found = [("", _("Default")), *((choice, choice) for choice in self.field.choices)]
        else:
            return []
        if self.value not in {value for value, _label in found}:
            found.append((self.value, self.value))
        return found

    @property
    def offers(self) -> tuple[str, ...]:
        return () if self.options or self.widget == "area" else self.field.known_values

    @property
    def default(self) -> str:
        """The default of the version that the form is checked against, in words."""
        default = default_of(self.field.flag, self.release)
        return default_words(default) if default.known else ""

    @property
    def releases(self) -> str:
        """Which releases have the flag, if not all."""
        last = self.field.last_seen
        if last:
            return _("Up to vLLM %(version)s.") % {"version": last}
        if self.field.first_seen != "0.6.3.post1":
            return _("From vLLM %(version)s.") % {"version": self.field.first_seen}
        return ""


@dataclass(frozen=True)
class Section:
    key: str
    label: str
    help: str
    controls: list[Control]

    @property
    def used(self) -> int:
        return sum(1 for control in self.controls if control.value)

    @property
    def open(self) -> bool:
        first = self.key in {"memory", "scheduling", "parallel"}
        return first or bool(self.used) or any(control.notes for control in self.controls)


def sections(draft: Draft, notes: Mapping[str, list[Said]], release: Release) -> list[Section]:
    """The form's groups with their controls."""
    controls = [
        Control(field, draft.values.get(key, ""), list(notes.get(key, ())), release)
        for key, field in fields().items()
    ]
    return [
        Section(
            group.key,
            _(group.label),
            _(group.help),
            [control for control in controls if control.field.group == group.key],
        )
        for group in groups()
    ]


@dataclass(frozen=True)
class Row:
    """One thing that a spec says. ``shown`` is masked; ``compared`` decides about equality."""

    key: str
    label: str
    shown: str
    compared: Any = None
    mono: bool = False
    flag: str = ""


def rows_of(spec: ServeSpec) -> list[Row]:
    """Everything that a spec says, in order; absent fields are left out."""
    rows = [
        Row("model", _("Model"), spec.model, spec.model),
        Row("served_names", _("Served names"), ", ".join(spec.served_names), spec.served_names),
        Row("gpus", _("GPUs to use"), spec.gpus, spec.gpus),
    ]
    for key, definition in fields().items():
        value = spec.values.get(key)
        if value is None:
            continue
        words = {True: _("on"), False: _("off")}
        shown = words[value] if isinstance(value, bool) else grouped(value)
        rows.append(Row(key, _(definition.label), shown, value, flag=definition.flag))
    for name, value in mask_environment(dict(spec.environment)).items():
        rows.append(Row(f"environment.{name}", name, value, spec.environment[name], mono=True))
    for name, value in spec.secrets.items():
        rows.append(Row(f"environment.{name}", name, MASK, (value,), mono=True))
    rows.append(
        Row("extra_arguments", _("Extra arguments"), masked_extra(spec), spec.extra_arguments, mono=True)
    )
    return [row for row in rows if row.shown]


def grouped(value: Any) -> str:
    """A number with its thousands apart from 10,000 on; other values as text."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10_000:
        return f"{value:,}"
    return value_text(value)


@dataclass(frozen=True)
class Pair:
    """One row of a comparison; None where a side says nothing."""

    label: str
    left: Row | None
    right: Row | None

    @property
    def differs(self) -> bool:
        return (self.left.compared if self.left else None) != (self.right.compared if self.right else None)

    @property
    def left_text(self) -> str:
        return self.left.shown if self.left else ""

    @property
    def right_text(self) -> str:
        """The right side; a secret that changed says so, since its values are not shown."""
        if self.right is None:
            return ""
        if self.differs and self.left is not None and self.left.shown == self.right.shown == MASK:
            return _("another value")
        return self.right.shown

    @property
    def flag(self) -> str:
        return (self.right or self.left).flag  # type: ignore[union-attr]


def compare(left: ServeSpec, right: ServeSpec) -> list[Pair]:
    """Both specs row by row, in the order of the form."""
    lefts = {row.key: row for row in rows_of(left)}
    rights = {row.key: row for row in rows_of(right)}
    order = ["model", "served_names", "gpus", *fields()]
    variables = [key for key in dict.fromkeys([*lefts, *rights]) if key.startswith("environment.")]
    keys = [key for key in [*order, *variables, "extra_arguments"] if key in lefts or key in rights]
    return [Pair((lefts.get(key) or rights[key]).label, lefts.get(key), rights.get(key)) for key in keys]


def changes(old: ServeSpec, new: ServeSpec) -> list[Pair]:
    return [pair for pair in compare(old, new) if pair.differs]


def command_text(spec: ServeSpec, release: Release | None = None) -> str:
    """The command as far as it can be built: what cannot be read is left out of it."""
    spec = spec if spec.model else replace(spec, model="MODEL")
    for attempt in (
        spec,
        replace(spec, gpus=""),
        replace(spec, extra_arguments=""),
        replace(spec, gpus="", extra_arguments=""),
    ):
        try:
            return display_command(attempt, release=release)
        except Unreadable:
            continue
    return ""


@dataclass(frozen=True)
class KnownModel:
    """A model that a host has, or that a profile has named."""

    value: str
    note: str


def known_models(user: Any) -> list[KnownModel]:
    """What the picker offers: models on hosts with where they are, then those of other profiles."""
    where: dict[str, list[str]] = {}
    for name, facts in Host.objects.visible_to(user).values_list("name", "facts"):
        for model in facts.get("models") or ():
            value = model.get("name") if model.get("kind") == "hf-cache" else model.get("path")
            if value:
                where.setdefault(str(value), []).append(name)
    found = [KnownModel(value, ", ".join(hosts)) for value, hosts in sorted(where.items())]
    used = Revision.objects.order_by("model").values_list("model", flat=True).distinct()[:200]
    return found + [KnownModel(value, _("in a profile")) for value in used if value not in where]


@dataclass(frozen=True)
class Past:
    """A revision in the list: what changed since the one before, and which engines have it."""

    revision: Revision
    changes: list[Pair] = field(default_factory=list)
    engines: list[Engine] = field(default_factory=list)
    first: bool = False
