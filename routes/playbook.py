"""Routes as operators write them by hand: the playbook's JSON, one object or a list. Pure.

{"model_name": "qwen3-8b", "provider": "openai-compatible", "base_url": "http://vllm:8000/v1",
 "api_key": "EMPTY", "max_tokens": 32768, "timeout": 120}

Entries with the same model name are targets of one route. ``timeout`` is the limit of a whole request in
seconds. Written, ``base_url`` ends in /v1 and ``api_key`` is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engines.vllm.notes import Note, Unreadable, error, gettext_noop, info
from routes.baseurl import read_base_url
from routes.naming import is_name

PROVIDER = "openai-compatible"
#: what engines of ours and of others are called in such files
_PROVIDERS = {PROVIDER, "openai", "openai_compatible", "vllm", "custom", ""}
_FIELDS = ("model_name", "provider", "base_url", "api_key", "max_tokens", "timeout")
#: what "no key" is written as
_NO_KEY = {"", "empty", "none", "null"}
MOST = 2000


@dataclass(frozen=True)
class Entry:
    """One object of the file. ``base_url`` as the gateway keeps it (no /v1); an empty key is none."""

    model_name: str
    base_url: str
    api_key: str = field(default="", repr=False)
    max_tokens: int | None = None
    timeout: float | None = None


@dataclass(frozen=True)
class Reading:
    """What a file says. With ``errors`` nothing of it is to be used; ``notes`` are worth a look."""

    entries: tuple[Entry, ...] = ()
    errors: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()


def read_routes(text: str) -> Reading:
    """Every mistake is reported, each with the entry's number and name."""
    try:
        data = json.loads(text)
    except ValueError as mistake:
        line = getattr(mistake, "lineno", 1)
        return Reading(
            errors=(
                error(
                    "json_unreadable",
                    gettext_noop("This is not JSON: line %(line)d cannot be read."),
                    remedy=gettext_noop("Paste one object {…} or a list of them […]."),
                    line=line,
                ),
            )
        )
    if isinstance(data, Mapping):
        data = [data]
    if not isinstance(data, list) or not data:
        return Reading(
            errors=(
                error(
                    "json_no_routes",
                    gettext_noop("There is no route in it."),
                    remedy=gettext_noop("Paste one object {…} or a list of them […]."),
                ),
            )
        )
    if len(data) > MOST:
        return Reading(
            errors=(
                error("too_many_routes", gettext_noop("Import at most %(most)d entries at once."), most=MOST),
            )
        )
    entries, errors, notes = [], [], []
    for number, item in enumerate(data, 1):
        reader = _EntryReader(number, item)
        entry = reader.read()
        errors += reader.errors
        notes += reader.notes
        if entry is not None:
            entries.append(entry)
    return Reading(tuple(entries), tuple(errors), tuple(notes))


class _EntryReader:
    def __init__(self, number: int, item: Any):
        self.item = item
        self.where = f"{number}"
        self.errors: list[Note] = []
        self.notes: list[Note] = []

    def wrong(self, code: str, message: str, **params: Any) -> None:
        self.errors.append(error(code, message, where=self.where, **params))

    def read(self) -> Entry | None:
        if not isinstance(self.item, Mapping):
            self.wrong("entry_unreadable", gettext_noop("Entry %(where)s is not an object {…}."))
            return None
        name = self._name()
        if name:
            self.where = f"{self.where} ({name})"
        base_url = self._base_url()
        api_key = self.item.get("api_key") or ""
        if not isinstance(api_key, str):
            self.wrong("api_key_unreadable", gettext_noop("Entry %(where)s: api_key has to be text."))
            api_key = ""
        api_key = api_key.strip()
        provider = self.item.get("provider") or ""
        if not isinstance(provider, str) or provider.lower() not in _PROVIDERS:
            self.wrong(
                "provider_unknown",
                gettext_noop("Entry %(where)s: only the provider “%(known)s” is served."),
                known=PROVIDER,
            )
        max_tokens = self._number("max_tokens", whole=True)
        timeout = self._number("timeout", whole=False)
        unknown = sorted(str(key)[:40] for key in self.item if key not in _FIELDS)
        if unknown:
            self.notes.append(
                info(
                    "fields_ignored",
                    gettext_noop("Entry %(where)s: not used: %(names)s."),
                    where=self.where,
                    names=", ".join(unknown),
                )
            )
        if self.errors:
            return None
        return Entry(
            name,
            base_url,
            "" if api_key.lower() in _NO_KEY else api_key,
            int(max_tokens) if max_tokens is not None else None,
            timeout,
        )

    def _name(self) -> str:
        name = self.item.get("model_name")
        if not isinstance(name, str) or not name.strip():
            self.wrong("name_missing", gettext_noop("Entry %(where)s has no model_name."))
            return ""
        name = name.strip()
        if not is_name(name):
            self.wrong(
                "name_unusable",
                gettext_noop("Entry %(where)s: “%(name)s” cannot be a model name."),
                name=name[:60],
            )
        return name[:60]

    def _base_url(self) -> str:
        text = self.item.get("base_url")
        if not isinstance(text, str):
            text = ""
        try:
            return read_base_url(text).text
        except Unreadable as mistake:
            self.wrong(
                mistake.note.code,
                gettext_noop("Entry %(where)s, base_url: %(reason)s"),
                reason=mistake.note,
            )
            return ""

    def _number(self, name: str, *, whole: bool) -> float | None:
        value = self.item.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                value = None
        fits = (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and 0 < value < 2**31
            and (not whole or value == int(value))
        )
        if not fits:
            self.wrong(
                "number_unreadable",
                gettext_noop("Entry %(where)s: %(name)s has to be a number above 0."),
                name=name,
            )
            return None
        return float(value)


def write_routes(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """The objects for ``json.dumps``; no api_key in any."""
    return [_written(entry) for entry in entries]


def _written(entry: Entry) -> dict[str, Any]:
    written: dict[str, Any] = {
        "model_name": entry.model_name,
        "provider": PROVIDER,
        "base_url": f"{entry.base_url}/v1",
    }
    if entry.max_tokens is not None:
        written["max_tokens"] = entry.max_tokens
    if entry.timeout is not None:
        written["timeout"] = int(entry.timeout) if entry.timeout == int(entry.timeout) else entry.timeout
    return written
