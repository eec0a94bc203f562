"""Argument lists of ``vllm serve``: grouped by flag, and extra arguments checked."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engines.vllm import catalog
from engines.vllm.fields import Field, Kind, fields, fields_by_flag, read_value, value_text
from engines.vllm.masking import SECRET_FLAGS, find_secret, is_secret_name
from engines.vllm.notes import Mend, Note, Unreadable, error, gettext_noop, mend, warning
from engines.vllm.shellwords import split_words

#: what kvadmin itself sets, or an engine settles
OWN_FLAGS = frozenset(
    {
        "--host",
        "--port",
        "--uds",
        "--api-key",
        "--served-model-name",
        "--model",
        "--model-tag",
        "--ssl-keyfile",
        "--ssl-certfile",
        "--ssl-ca-certs",
        "--ssl-cert-reqs",
        "--ssl-ciphers",
        "--enable-ssl-refresh",
    }
)
_ENDING_FLAGS = frozenset({"-h", "--help", "-v", "--version"})
_FLAG = re.compile(r"--?[A-Za-z]")


@dataclass(frozen=True)
class Argument:
    """A flag with what belongs to it. ``written`` is the flag as it stands there, ``flag`` the one it
    means ("" if unknown, or for words before any flag); ``off`` if this spelling turns it off; ``words``
    are all words of it."""

    written: str
    flag: str
    off: bool
    values: tuple[str, ...]
    words: tuple[str, ...]
    #: where its first word stands among all words
    position: int = 0

    @property
    def dotted(self) -> bool:
        return "." in self.written


def read_arguments(words: Sequence[str]) -> list[Argument]:
    """Group words by flag. A word belongs to a flag if the flag takes values; a negative number is a
    value. Words that belong to no flag come as Arguments with an empty ``written``."""
    found: list[Argument] = []
    position = 0
    while position < len(words):
        word = words[position]
        first = position
        position += 1
        if not _FLAG.match(word):
            found.append(Argument("", "", False, (word,), (word,), first))
            continue
        written, equals, attached = word.partition("=")
        if not written.startswith("--") and re.fullmatch(r"-O\d", written):
            written, equals, attached = "-O", "=", written[2:]
        flag, off = catalog.resolve(written) or ("", False)
        values: list[str] = [attached] if equals else []
        taken = [word]
        room = 0 if equals else _room(flag, off, dotted="." in written)
        while room and position < len(words) and not _FLAG.match(words[position]):
            if room == _OPTIONAL and words[position].lower() not in {"true", "false"}:
                break
            values.append(words[position])
            taken.append(words[position])
            position += 1
            room = room - 1 if room > 0 and room != _OPTIONAL else (0 if room == _OPTIONAL else room)
        found.append(Argument(written, flag, off, tuple(values), tuple(taken), first))
    return found


def replaced(text: str, argument: Argument, words: Sequence[str] = ()) -> str:
    """Extra arguments with ``words`` in place of one argument (none: it is taken out); the rest of the
    text stays as it was written."""
    starts = [word.start for word in split_words(text).words]
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    begin = starts[argument.position]
    after = argument.position + len(argument.words)
    end = starts[after] if after < len(starts) else len(plain)
    new = shlex.join(words) + (" " if words and end < len(plain) else "")
    return (plain[:begin] + new + plain[end:]).strip()


_MANY, _OPTIONAL = -1, 1000


def _room(flag: str, off: bool, *, dotted: bool) -> int:
    """How many words may follow a flag as its values."""
    if dotted:
        return 1
    if off:
        return 0
    if not flag:
        return _MANY
    kind = catalog.all_flags()[flag].kind
    # up to 0.8.4 some switches took an optional true or false
    return {"bool": _OPTIONAL, "list": _MANY, "json": 1}.get(kind, 1)


@dataclass(frozen=True)
class ExtraArguments:
    """Extra arguments, read: ``words`` go to the command as they are if no note is an error."""

    words: tuple[str, ...]
    arguments: tuple[Argument, ...]
    notes: tuple[Note, ...]


def read_extra(text: str, values: Mapping[str, Any] | None = None) -> ExtraArguments:
    """Split and check extra arguments. ``values`` are the profile's typed values, to find doubles."""
    split = split_words(text)
    arguments = read_arguments(split.texts)
    notes = list(split.notes)
    seen: dict[str, str] = {}
    for argument in arguments:
        note = _check(argument, values or {}, seen)
        if note is not None:
            notes.append(replace(note, mends=_mends(note, argument, text, values or {})))
        if argument.flag and not argument.dotted:
            seen.setdefault(argument.flag, argument.written)
    return ExtraArguments(tuple(split.texts), tuple(arguments), tuple(notes))


def _mends(note: Note, argument: Argument, text: str, values: Mapping[str, Any]) -> tuple[Mend, ...]:
    """What settles a note about an argument with one click."""
    out = mend(gettext_noop("Take it out here"), {"extra_arguments": replaced(text, argument)})
    field = fields_by_flag().get(argument.flag)
    found: list[Mend] = []
    if note.code in {"double_flag", "has_field"} and field is not None:
        value = _field_text(field, argument)
        if value is not None and value != value_text(values.get(field.key)):
            sets = {field.key: value, "extra_arguments": replaced(text, argument)}
            label = (
                gettext_noop("Take this one into the field")
                if note.code == "double_flag"
                else gettext_noop("Move it to its field")
            )
            found.append(mend(label, sets))
    if note.code == "unknown_flag" and note.params.get("near"):
        near = str(note.params["near"])
        _, equals, attached = argument.words[0].partition("=")
        words = (near + equals + attached, *argument.words[1:])
        sets = {"extra_arguments": replaced(text, argument, words)}
        found.append(mend(gettext_noop("Write %(new)s"), sets, new=near))
    if note.code == "has_field":
        return tuple(found)
    return (*found, out)


def _field_text(field: Field, argument: Argument) -> str | None:
    """What the field would hold, None if it cannot hold it."""
    if field.kind is Kind.BOOL:
        if argument.values:
            return None
        return "off" if argument.off and field.can_turn_off else None if argument.off else "on"
    if len(argument.values) != 1:
        return None
    try:
        return value_text(read_value(field, argument.values[0]))
    except Unreadable:
        return None


def is_own(written: str) -> bool:
    """Whether kvadmin sets this flag itself. Beginnings count: argparse takes ``--hos`` for ``--host``."""
    name = written.split(".")[0].replace("_", "-")
    resolved = catalog.resolve(name)
    if resolved is not None:
        return resolved[0] in OWN_FLAGS
    return len(name) > 3 and any(own.startswith(name) for own in OWN_FLAGS)


def _check(argument: Argument, values: Mapping[str, Any], seen: Mapping[str, str]) -> Note | None:
    written, flag = argument.written, argument.flag
    if not written:
        return error(
            "stray_word",
            gettext_noop("“%(word)s” belongs to no flag."),
            remedy=gettext_noop("Put it behind its flag, or in quotes if it is one value with blanks."),
            field="extra_arguments",
            word=argument.values[0][:80],
        )
    if written in _ENDING_FLAGS:
        return error(
            "ending_flag",
            gettext_noop("%(flag)s prints a text and ends: no engine would start."),
            remedy=gettext_noop("Take it out."),
            field="extra_arguments",
            flag=written,
        )
    if is_own(written):
        return _own_flag(written, flag)
    if flag in SECRET_FLAGS or is_secret_name(written) or any(map(find_secret, argument.values)):
        return error(
            "secret_argument",
            gettext_noop(
                "%(flag)s would put a secret on the command line, where every user of the host sees it."
            ),
            remedy=gettext_noop("Put it into a secret environment variable, for example HF_TOKEN."),
            field="extra_arguments",
            flag=written,
        )
    return _check_double(argument, values, seen) or _check_known(argument)


def _own_flag(written: str, flag: str) -> Note:
    remedies = {
        "--served-model-name": gettext_noop("Write the names into the field for served names."),
        "--model": gettext_noop("Write the model into its own field."),
        "--model-tag": gettext_noop("Write the model into its own field."),
        "--api-key": gettext_noop("Leave it out: each engine gets a key of its own."),
    }
    address = gettext_noop("Leave it out: address and port are settled where the engine is made.")
    return error(
        "own_flag",
        gettext_noop("%(flag)s is set by kvadmin."),
        remedy=remedies.get(flag, address),
        field="extra_arguments",
        flag=written,
    )


def _check_double(argument: Argument, values: Mapping[str, Any], seen: Mapping[str, str]) -> Note | None:
    field = fields_by_flag().get(argument.flag) or _begun(argument, values)
    if field is not None and values.get(field.key) is not None:
        return error(
            "double_flag",
            gettext_noop("%(flag)s is set in its own field as well."),
            remedy=gettext_noop("Keep one of the two."),
            field="extra_arguments",
            flag=argument.written,
        )
    if argument.flag in seen and not argument.dotted:
        return warning(
            "repeated_flag",
            gettext_noop("%(flag)s stands there twice; vLLM takes the last one."),
            field="extra_arguments",
            flag=argument.written,
        )
    if field is not None and not argument.dotted:
        return warning(
            "has_field",
            gettext_noop("%(flag)s has a field of its own, which explains and checks it."),
            field="extra_arguments",
            flag=argument.written,
        )
    return None


def _begun(argument: Argument, values: Mapping[str, Any]) -> Field | None:
    """A field in use that the flag is a beginning of: some release may take the one for the other."""
    name = argument.written.replace("_", "-")
    candidates = (
        [] if argument.flag or len(name) < 4 else [fields()[key] for key in values if key in fields()]
    )
    return next((field for field in candidates if field.flag.startswith(name)), None)


def _check_known(argument: Argument) -> Note | None:
    if not argument.flag:
        written = argument.written.split(".")[0]
        near = difflib.get_close_matches(
            written.replace("_", "-"), list(catalog.spellings()), n=1, cutoff=0.75
        )
        return warning(
            "unknown_flag",
            gettext_noop("No release of vLLM known here has %(flag)s."),
            remedy=gettext_noop("Did you mean %(near)s?") if near else "",
            field="extra_arguments",
            flag=written,
            near=near[0] if near else "",
        )
    facts = catalog.all_flags()[argument.flag]
    if facts.takes_value and not argument.off and not argument.values:
        return error(
            "value_missing",
            gettext_noop("%(flag)s needs a value after it."),
            field="extra_arguments",
            flag=argument.written,
        )
    if facts.kind == "json" and not argument.dotted and argument.values and not _is_json(argument.values[0]):
        return warning(
            "not_json",
            gettext_noop("%(flag)s takes JSON, and “%(value)s” is none."),
            remedy=gettext_noop("Put the whole of it into single quotes, so that its double quotes stay."),
            field="extra_arguments",
            flag=argument.written,
            value=argument.values[0][:60],
        )
    if argument.flag == "--disable-log-stats":
        return warning(
            "no_metrics",
            gettext_noop("%(flag)s takes away the metrics: charts and findings stay empty."),
            field="extra_arguments",
            flag=argument.written,
        )
    if argument.flag == "--config":
        return warning(
            "config_file",
            gettext_noop("What the file of %(flag)s sets is not seen or checked here."),
            field="extra_arguments",
            flag=argument.written,
        )
    return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
