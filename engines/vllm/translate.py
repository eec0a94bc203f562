"""One profile for any release: its flags as a given vLLM takes them, and what became of each."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from enum import StrEnum
from functools import lru_cache
from typing import Any

from engines.vllm import catalog, succession
from engines.vllm.arguments import replaced
from engines.vllm.fields import fields_by_flag, parse_size
from engines.vllm.items import Item, items_of
from engines.vllm.notes import Mend, Note, error, gettext_noop, info, mend, warning
from engines.vllm.release_values import wrong_value
from engines.vllm.releases import Flag, Release
from engines.vllm.spec import ServeSpec


class Origin(StrEnum):
    SET = "set"  # as the profile says it
    ADDED = "added"  # by kvadmin
    TRANSLATED = "translated"
    DROPPED = "dropped"
    REFUSED = "refused"  # this release will not take it, and nothing can stand in for it


@dataclass(frozen=True)
class Line:
    """``written`` is what the profile says, ``words`` what the command gets, ``variables`` what the
    environment gets; ``field`` is the input it comes from ("" for what kvadmin adds)."""

    origin: Origin
    written: tuple[str, ...]
    words: tuple[str, ...]
    note: Note | None = None
    field: str = ""
    variables: Mapping[str, str] = attribute(default_factory=dict)


@dataclass(frozen=True)
class Translation:
    release: Release
    lines: tuple[Line, ...]

    @property
    def words(self) -> list[str]:
        return [word for line in self.lines for word in line.words]

    @property
    def variables(self) -> dict[str, str]:
        return {name: value for line in self.lines for name, value in line.variables.items()}

    @property
    def notes(self) -> list[Note]:
        """What became of the flags of the profile; what was added says so where it stands."""
        return [line.note for line in self.lines if line.note is not None and line.origin is not Origin.ADDED]

    @property
    def refused(self) -> list[Line]:
        return [line for line in self.lines if line.origin is Origin.REFUSED]


def translate(spec: ServeSpec, release: Release) -> Translation:
    """Flags of the fields and of the extra arguments for ``release``; model, names and address apart."""
    return Translation(release, tuple(_Translator(spec, release).run()))


class _Translator:
    def __init__(self, spec: ServeSpec, release: Release):
        self.spec = spec
        self.release = release
        self.items = items_of(spec)
        self.json: dict[str, dict[str, Any]] = {}
        self.lines: list[Line] = []

    def run(self) -> list[Line]:
        for item in self.items:
            self.take(item)
        self.add_json()
        self.add_reasoning()
        return self.lines

    def take(self, item: Item) -> None:
        if not item.written:
            self.put(Origin.SET, item, item.words)
        elif item.flag == "--disable-log-requests" or (
            item.flag == "--enable-log-requests" and self.old_log()
        ):
            self.log_requests(item)
        else:
            hit = self.release.resolve(item.written)
            if hit is not None and not (item.flag and hit[0].name != item.flag and hit[1] != item.off):
                self.known(item, hit[0], off=hit[1])
            else:
                self.unknown(item)

    # what the release has

    def known(self, item: Item, flag: Flag, *, off: bool) -> None:
        words, note = item.words, None
        if item.flag == "--max-model-len" and item.value == "auto" and not self.release.at_least("0.14.0"):
            self.put(
                Origin.DROPPED,
                item,
                (),
                warning(
                    "auto_length",
                    gettext_noop(
                        "vLLM %(version)s does not fit the length to the memory: it takes the model's own."
                    ),
                    remedy=gettext_noop("Write a number, if the model's own is too long."),
                    field=item.key,
                    version=self.release.version,
                ),
            )
            return
        problem = None if off else wrong_value(item, flag, self.release, self.taken_out(item))
        if problem is not None:
            self.put(Origin.REFUSED, item, words, problem)
            return
        if reshaped := self.reshaped(item, flag):
            words, note = reshaped
        elif flag.deprecated:
            note = self.deprecated(item, flag)
        self.put(Origin.TRANSLATED if words != item.words else Origin.SET, item, words, note)

    def reshaped(self, item: Item, flag: Flag) -> tuple[tuple[str, ...], Note] | None:
        """The same flag in a form that this release reads, where its form has changed."""
        if flag.kind == "kv_list" and item.value.startswith("{"):
            pairs = _pairs(item.value)
            if pairs:
                return (flag.name, pairs), self.form(item)
        if flag.kind == "int" and item.values and not item.value.lstrip("-").isdigit():
            try:
                return (flag.name, str(parse_size(item.value))), self.form(item)
            except ValueError:
                return None
        return None

    def form(self, item: Item) -> Note:
        return info(
            "other_form",
            gettext_noop("vLLM %(version)s wants %(flag)s in an older form."),
            field=item.key,
            version=self.release.version,
            flag=item.written,
        )

    def deprecated(self, item: Item, flag: Flag) -> Note:
        new = succession.successor(flag.name)
        text = gettext_noop("vLLM %(version)s calls %(flag)s deprecated.")
        remedy = gettext_noop("%(new)s takes its place.") if new else gettext_noop("It will go; take it out.")
        if flag.name in succession.GONE:
            remedy = succession.GONE[flag.name]
        return warning(
            "deprecated_flag",
            text,
            remedy=remedy,
            field=item.key,
            mends=self.taken_out(item) if flag.name in succession.GONE else (),
            version=self.release.version,
            flag=item.written,
            new=new,
        )

    # what it has not

    def unknown(self, item: Item) -> None:
        name = item.flag
        if not name:
            self.nowhere_known(item)
        elif name in succession.GONE and not self.too_new(name):
            self.put(Origin.DROPPED, item, (), self.gone(item, succession.GONE[name]))
        elif name in succession.RENAMED and succession.RENAMED[name] in self.release.flags:
            self.instead(item, (succession.RENAMED[name], *item.values))
        elif name in succession.REPLACED and succession.REPLACED[name][0] in self.release.flags:
            self.instead(item, succession.REPLACED[name])
        elif name == "--task" and "--runner" in self.release.flags and item.value in succession.TASKS:
            self.instead(item, succession.TASKS[item.value])
        elif name in succession.INTO_JSON and succession.INTO_JSON[name][0] in self.release.flags:
            self.into_json(item)
        elif not self.backward(item):
            self.put(Origin.REFUSED, item, item.words, self.missing(item))

    def backward(self, item: Item) -> bool:
        """A flag that this release does not have yet, said in its own way."""
        name, known = item.flag, self.release.flags
        if name == "--attention-backend" and item.values:
            self.put(
                Origin.TRANSLATED,
                item,
                (),
                info(
                    "as_variable",
                    gettext_noop("vLLM %(version)s takes %(flag)s as the variable %(name)s."),
                    field=item.key,
                    version=self.release.version,
                    flag=name,
                    name="VLLM_ATTENTION_BACKEND",
                ),
                {"VLLM_ATTENTION_BACKEND": item.value},
            )
            return True
        if name == "--runner" and "--task" in known:
            task = {"generate": "generate", "pooling": "embed", "draft": "draft"}.get(item.value)
            self.instead(item, ("--task", task) if task else ())
            return True
        flag = known.get(name)
        if item.off and flag is not None and flag.bare_values:
            self.put(Origin.TRANSLATED, item, (f"{name}=False",), self.form(item))
            return True
        if item.off and (flag is None or flag.default is False):
            self.put(
                Origin.DROPPED,
                item,
                (),
                info(
                    "off_anyway",
                    gettext_noop("It is off in vLLM %(version)s anyway, which cannot be told so."),
                    field=item.key,
                    version=self.release.version,
                ),
            )
            return True
        return False

    def too_new(self, name: str) -> bool:
        facts = catalog.all_flags()[name]
        return not self.release.at_least(facts.first_seen)

    def gone(self, item: Item, why: str) -> Note:
        facts = catalog.all_flags()[item.flag]
        return warning(
            "flag_gone",
            gettext_noop("vLLM %(version)s has no %(flag)s (the last one with it: %(last)s). %(why)s"),
            remedy=gettext_noop("It is left out of the command."),
            field=item.key,
            mends=self.taken_out(item),
            version=self.release.version,
            flag=item.written,
            last=facts.last_seen,
            why=Note(_INFO, "", why),
        )

    def instead(self, item: Item, words: Sequence[str]) -> None:
        note = warning(
            "flag_replaced",
            gettext_noop("vLLM %(version)s has no %(flag)s: the command says %(new)s.")
            if words
            else gettext_noop("vLLM %(version)s has no %(flag)s, and needs none for this."),
            field=item.key,
            mends=self.rewritten(item, words),
            version=self.release.version,
            flag=item.written,
            new=" ".join(words),
        )
        self.put(Origin.TRANSLATED if words else Origin.DROPPED, item, words, note)

    def into_json(self, item: Item) -> None:
        target, key = succession.INTO_JSON[item.flag]
        value: Any = succession.json_value(item.flag, item.values)
        if item.flag == "--rope-scaling":
            value = _json(item.value, value)
        place = self.json.setdefault(target, {})
        if item.flag == "--speculative-model" and value == "[ngram]":
            place["method"] = "ngram"
        else:
            place[key] = value
        note = warning(
            "flag_in_json",
            gettext_noop("vLLM %(version)s has no %(flag)s: it is now “%(key)s” in %(new)s."),
            field=item.key,
            version=self.release.version,
            flag=item.written,
            key=key,
            new=target,
        )
        self.put(Origin.TRANSLATED, item, (), note)

    def add_json(self) -> None:
        """One word for each JSON flag that old flags went into, together with what the profile has there."""
        for target, gathered in self.json.items():
            definition = fields_by_flag().get(target)
            key = definition.key if definition is not None else ""
            present = self.spec.values.get(key)
            if isinstance(present, dict):
                gathered = {**gathered, **present}
                self.lines = [line for line in self.lines if line.field != key]
            text = json.dumps(gathered)
            mends = self.gathered(target, key, text)
            self.lines = [
                replace(line, note=replace(line.note, mends=mends))
                if line.note is not None and line.note.params.get("new") == target
                else line
                for line in self.lines
            ]
            note = info("json_gathered", gettext_noop("Holds what older flags said."))
            self.lines.append(Line(Origin.ADDED, (), (target, text), note, key))

    def gathered(self, target: str, key: str, text: str) -> tuple[Mend, ...]:
        old = [
            item.argument
            for item in self.items
            if item.argument is not None and succession.INTO_JSON.get(item.flag, ("", ""))[0] == target
        ]
        extra = self.spec.extra_arguments
        for argument in reversed(old):
            extra = replaced(extra, argument)
        if key:
            sets = {key: text, "extra_arguments": extra}
        else:
            sets = {"extra_arguments": f"{extra} {shlex.join((target, text))}".strip()}
        return (mend(gettext_noop("Write %(new)s"), sets, new=target),)

    def add_reasoning(self) -> None:
        if self.spec.values.get("reasoning_parser") and "--enable-reasoning" in self.release.flags:
            said = any(item.flag == "--enable-reasoning" for item in self.items)
            if not said and not self.release.at_least("0.9.0"):
                why = gettext_noop("The parser works only together with it in vLLM %(version)s.")
                note = info("reasoning_on", why, version=self.release.version)
                self.lines.append(Line(Origin.ADDED, (), ("--enable-reasoning",), note))

    def missing(self, item: Item) -> Note:
        facts = catalog.all_flags()[item.flag]
        params = {"version": self.release.version, "flag": item.written}
        remedy = succession.REMEDIES.get(item.flag, "")
        if self.too_new(item.flag):
            return error(
                "flag_too_new",
                gettext_noop("vLLM %(version)s does not have %(flag)s yet: it came with %(first)s."),
                remedy=remedy or gettext_noop("Take it out, or use a newer vLLM."),
                field=item.key,
                mends=self.taken_out(item),
                first=facts.first_seen,
                **params,
            )
        return error(
            "flag_refused",
            gettext_noop("vLLM %(version)s refuses %(flag)s: the last one with it was %(last)s."),
            remedy=remedy or gettext_noop("Take it out, or use an older vLLM."),
            field=item.key,
            mends=self.taken_out(item),
            last=facts.last_seen,
            **params,
        )

    def nowhere_known(self, item: Item) -> None:
        if not self.release.exact:
            self.put(Origin.SET, item, item.words)
            return
        near = _near(item.written.split(".")[0].replace("_", "-"), tuple(self.release.spellings))
        self.put(
            Origin.REFUSED,
            item,
            item.words,
            error(
                "unknown_here",
                gettext_noop("vLLM %(version)s refuses %(flag)s: it does not know it."),
                remedy=gettext_noop("Did you mean %(near)s?") if near else gettext_noop("Take it out."),
                field=item.key,
                mends=[*self.renamed(item, near), *self.taken_out(item)],
                version=self.release.version,
                flag=item.written,
                near=near,
            ),
        )

    # requests in the log: on by default to 0.10.0, off since

    def old_log(self) -> bool:
        return "--enable-log-requests" not in self.release.flags

    def log_requests(self, item: Item) -> None:
        enabling = item.flag == "--enable-log-requests"
        wanted = (not item.off) if enabling else item.off
        new = (
            (() if wanted else ("--disable-log-requests",))
            if self.old_log()
            else (("--enable-log-requests",) if wanted else ())
        )
        if new == item.words:
            self.put(Origin.SET, item, new)
            return
        if not enabling and not wanted:
            why = gettext_noop(
                "vLLM %(version)s logs no requests unless --enable-log-requests says so: %(flag)s is left"
                " out."
            )
        elif enabling and wanted:
            why = gettext_noop("vLLM %(version)s logs requests by default: %(flag)s is left out.")
        else:
            why = gettext_noop("vLLM %(version)s says %(flag)s as %(new)s.")
        note = (info if enabling else warning)(
            "log_requests",
            why,
            field=item.key,
            mends=() if enabling else self.rewritten(item, new),
            version=self.release.version,
            flag=item.written,
            new=" ".join(new),
        )
        self.put(Origin.TRANSLATED if new else Origin.DROPPED, item, new, note)

    # lines and mends

    def put(
        self,
        origin: Origin,
        item: Item,
        words: Sequence[str],
        note: Note | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.lines.append(Line(origin, item.words, tuple(words), note, item.key, variables or {}))

    def taken_out(self, item: Item) -> tuple[Mend, ...]:
        return self.rewritten(item, ())

    def rewritten(self, item: Item, words: Sequence[str]) -> tuple[Mend, ...]:
        """The form without the item, and with ``words`` in its place."""
        sets: dict[str, str] = {}
        rest = list(words)
        definition = fields_by_flag().get(words[0]) if words else None
        if definition is not None and self.spec.values.get(definition.key) is None and len(words) <= 2:
            sets[definition.key] = words[1] if len(words) == 2 else "on"
            rest = []
        if item.argument is None:
            sets[item.key] = ""
            if rest:
                return ()
        else:
            sets["extra_arguments"] = replaced(self.spec.extra_arguments, item.argument, rest)
        if not words:
            return (mend(gettext_noop("Take %(flag)s out"), sets, flag=item.written),)
        return (mend(gettext_noop("Write %(new)s"), sets, new=" ".join(words)),)

    def renamed(self, item: Item, near: str) -> tuple[Mend, ...]:
        if not near or item.argument is None:
            return ()
        rest = item.words[0].partition("=")
        head = f"{near}={rest[2]}" if rest[1] else near
        text = replaced(self.spec.extra_arguments, item.argument, (head, *item.words[1:]))
        return (mend(gettext_noop("Write %(new)s"), {"extra_arguments": text}, new=near),)


_INFO = info("", "").severity


@lru_cache(maxsize=512)
def _near(text: str, names: tuple[str, ...]) -> str:
    return next(iter(difflib.get_close_matches(text, names, n=1, cutoff=0.75)), "")


def _pairs(text: str) -> str:
    value = _json(text, None)
    if not isinstance(value, dict) or not all(isinstance(number, int) for number in value.values()):
        return ""
    return ",".join(f"{name}={number}" for name, number in value.items())


def _json(text: str, otherwise: Any) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return otherwise
