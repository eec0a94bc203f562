"""A profile against its targets, in words: findings with their mends, and what each version gets."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from engines.vllm.defaults import Default, default_of
from engines.vllm.fields import fields, fields_by_flag
from engines.vllm.masking import mask_arguments
from engines.vllm.notes import Note, Severity, gettext_noop
from engines.vllm.releases import Release, Source
from engines.vllm.spec import ServeSpec
from engines.vllm.target import Target, Verdict, judge
from engines.vllm.translate import Line, Origin

_TONES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFO: "info"}


@dataclass(frozen=True)
class Fix:
    """A button that changes inputs of the form; ``sets`` is JSON, new text by the input's name."""

    label: str
    sets: str


def fixes_of(note: Note) -> list[Fix]:
    return [Fix(mend.text(_), json.dumps(dict(mend.sets), ensure_ascii=False)) for mend in note.mends]


@dataclass(frozen=True)
class Finding:
    """``where`` are the targets it holds for; empty when it holds for all of them."""

    text: str
    tone: str
    field: str
    label: str
    fixes: list[Fix]
    where: list[str] = field(default_factory=list)

    @property
    def word(self) -> str:
        return {"bad": _("Does not start"), "warn": _("Mind this"), "info": _("Good to know")}[self.tone]


def findings_of(verdicts: Sequence[Verdict]) -> list[Finding]:
    """Findings of all targets, the same one once; what forbids a start first."""
    merged: dict[str, list[tuple[Note, str]]] = {}
    for verdict in verdicts:
        for note in verdict.notes:
            merged.setdefault(_sameness(note), []).append((note, verdict.target.name))
    labels = {key: _(definition.label) for key, definition in fields().items()}
    labels |= {"model": _("Model"), "gpus": _("GPUs to use"), "extra_arguments": _("Extra arguments")}
    found = []
    for pairs in merged.values():
        note = _joined([note for note, _name in pairs])
        names = list(dict.fromkeys(name for _note, name in pairs))
        where = [] if len(pairs) == len(verdicts) else names
        label = labels.get(note.field, "")
        field_key = note.field if label else ""
        found.append(Finding(note.text(_), _TONES[note.severity], field_key, label, fixes_of(note), where))
    order = ["bad", "warn", "info"]
    return sorted(found, key=lambda one: order.index(one.tone))


def _sameness(note: Note) -> str:
    """Equal for notes that differ in nothing but the version they are about."""
    params = {name: str(value) for name, value in note.params.items() if name != "version"}
    mends = [(mend.label, dict(mend.sets)) for mend in note.mends]
    return json.dumps([note.code, note.message, note.field, params, mends], sort_keys=True)


def _joined(notes: Sequence[Note]) -> Note:
    """One note about the versions of all."""
    versions = list(dict.fromkeys(note.params["version"] for note in notes if "version" in note.params))
    if len(versions) < 2:
        return notes[0]
    shown = _(", ").join(str(version) for version in versions)
    return replace(notes[0], params={**notes[0].params, "version": shown})


@dataclass(frozen=True)
class Part:
    """One row of what a version gets. ``written`` is what the profile says, ``gets`` what stands in the
    command; ``tone`` and ``word`` say what happened to it."""

    flag: str
    written: str
    gets: str
    tone: str
    word: str
    why: str


_WORDS = {
    Origin.SET: ("off", gettext_noop("as set")),
    Origin.ADDED: ("busy", gettext_noop("added")),
    Origin.TRANSLATED: ("busy", gettext_noop("translated")),
    Origin.DROPPED: ("warn", gettext_noop("left out")),
    Origin.REFUSED: ("bad", gettext_noop("refused")),
}


@dataclass(frozen=True)
class Rest:
    """A flag that the profile leaves alone, and what the version then does."""

    flag: str
    label: str
    default: str


@dataclass(frozen=True)
class Panel:
    """What one target gets, flag by flag."""

    key: str
    title: str
    source: str
    counts: str
    starts: bool
    parts: list[Part]
    rest: list[Rest]


def panel_of(spec: ServeSpec, verdict: Verdict, position: int = 0) -> Panel:
    release = verdict.target.release
    lines = [*_own_lines(spec), *verdict.translation.lines]
    parts = [_part(line, release, spec) for line in lines]
    return Panel(
        key=f"gets-{position}",
        title=title_of(verdict.target),
        source=source_of(release),
        counts=_counts(lines),
        starts=verdict.starts,
        parts=parts,
        rest=_rest(spec, release),
    )


def title_of(target: Target) -> str:
    return _("vLLM %(version)s on %(host)s") % {"version": target.release.version, "host": target.name}


def source_of(release: Release) -> str:
    if release.source is Source.HOST:
        return _("Flags as this vLLM printed them on a host.")
    if release.source is Source.NEAREST:
        return _("The flags of vLLM %(near)s stand in for it.") % {"near": release.read_from}
    return ""


def _own_lines(spec: ServeSpec) -> list[Line]:
    """What kvadmin adds to every command."""
    lines = [Line(Origin.ADDED, (), ("--host", "127.0.0.1")), Line(Origin.ADDED, (), ("--port", "8000"))]
    if spec.served_names:
        words = ("--served-model-name", *spec.served_names)
        lines.append(Line(Origin.SET, words, words, field="served_names"))
    return lines


def _part(line: Line, release: Release, spec: ServeSpec) -> Part:
    tone, word = _WORDS[line.origin]
    first = (line.written or line.words or ("",))[0]
    why = line.note.text(_) if line.note is not None else _remark(line, release)
    gets = _text(line.words, spec)
    if line.variables:
        gets = " ".join(f"{name}={shlex.quote(value)}" for name, value in line.variables.items())
    return Part(first.partition("=")[0], _text(line.written, spec), gets, tone, _(word), why)


def _text(words: Iterable[str], spec: ServeSpec) -> str:
    return shlex.join(mask_arguments(list(words), spec.secrets.values()))


def _remark(line: Line, release: Release) -> str:
    """A line as it was set, beside the version's own default; or why kvadmin adds it."""
    if line.origin is Origin.ADDED:
        return _("From the engine: these stand for its address and port.")
    definition = fields_by_flag().get(line.written[0].partition("=")[0]) if line.written else None
    if definition is None or line.origin is not Origin.SET:
        return ""
    shown = default_words(default_of(definition.flag, release))
    return _("By default: %(default)s.") % {"default": shown} if shown else ""


def default_words(default: Default) -> str:
    if not default.known:
        return _("there is no such flag")
    return _(default.words) if default.words else default.value


def _counts(lines: Sequence[Line]) -> str:
    numbers = {origin: sum(1 for line in lines if line.origin is origin) for origin in Origin}
    said = [ngettext("%(n)d as set", "%(n)d as set", numbers[Origin.SET]) % {"n": numbers[Origin.SET]}]
    for origin, one in (
        (Origin.ADDED, _("%(n)d added")),
        (Origin.TRANSLATED, _("%(n)d translated")),
        (Origin.DROPPED, _("%(n)d left out")),
        (Origin.REFUSED, _("%(n)d refused")),
    ):
        if numbers[origin]:
            said.append(one % {"n": numbers[origin]})
    return _(", ").join(said)


def _rest(spec: ServeSpec, release: Release) -> list[Rest]:
    """The version's default for every field that is left alone, where it has one to name."""
    found = []
    for key, definition in fields().items():
        if spec.values.get(key) is not None or definition.flag not in release.flags:
            continue
        default = default_of(definition.flag, release)
        shown = default_words(default)
        if not shown and not definition.can_turn_off and not release.flags[definition.flag].takes_value:
            shown = _("off")
        if shown:
            found.append(Rest(definition.flag, _(definition.label), shown))
    return found


@dataclass(frozen=True)
class Checked:
    """A draft against all its targets."""

    findings: list[Finding]
    panels: list[Panel]
    release: Release

    @property
    def worst(self) -> str:
        return self.findings[0].tone if self.findings else "ok"


def check_against(spec: ServeSpec, targets: Sequence[Target]) -> Checked:
    verdicts = [judge(spec, target) for target in targets]
    return Checked(
        findings_of(verdicts),
        [panel_of(spec, verdict, position) for position, verdict in enumerate(verdicts)],
        targets[0].release,
    )
