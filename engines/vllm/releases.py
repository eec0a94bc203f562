"""The flags of one release of vLLM: from the catalogue, from a host's own list, or from the nearest older."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

from engines.vllm import catalog
from engines.vllm.versions import public, version_key


class Source(StrEnum):
    CATALOGUE = "catalogue"
    HOST = "host"  # read from an installed vLLM
    NEAREST = "nearest"  # the release is unknown: another one stands in for it


@dataclass(frozen=True)
class Flag:
    """A flag in one release. ``choices`` is empty where the values are open. ``bare_values``: a switch that
    takes ``true`` or ``false`` as its value and has no ``--no-`` form."""

    name: str
    kind: str
    default: Any = None
    choices: tuple[Any, ...] = ()
    aliases: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()
    deprecated: bool = False
    bare_values: bool = False

    @property
    def takes_value(self) -> bool:
        return self.kind != "bool"


@dataclass(frozen=True)
class Release:
    """What ``version`` understands. ``read_from`` is the release whose flags these are."""

    version: str
    read_from: str
    source: Source
    flags: Mapping[str, Flag] = field(repr=False)

    @property
    def exact(self) -> bool:
        return self.source is not Source.NEAREST

    def at_least(self, version: str) -> bool:
        return version_key(public(self.version)) >= version_key(version)

    @cached_property
    def spellings(self) -> Mapping[str, tuple[str, bool]]:
        """Each way to write a flag here -> (its name, whether this spelling turns it off)."""
        found: dict[str, tuple[str, bool]] = {}
        for name, flag in self.flags.items():
            found.update(dict.fromkeys(flag.negations, (name, True)))
        for name, flag in self.flags.items():
            found.update(dict.fromkeys(flag.aliases, (name, False)))
        found.update({name: (name, False) for name in self.flags})
        return found

    def resolve(self, written: str) -> tuple[Flag, bool] | None:
        """The flag that this release takes ``written`` for (no value attached), and whether it turns it
        off; None if it would be refused. Underscores, dotted keys and unambiguous beginnings count."""
        head, dot, _ = written.partition(".")
        name = head.replace("_", "-") if head.startswith("--") else head
        hit = self.spellings.get(name)
        if hit is None and not dot and name.startswith("--") and len(name) > 3:
            near = {hit for spelling, hit in self.spellings.items() if spelling.startswith(name)}
            hit = near.pop() if len(near) == 1 else None
        return (self.flags[hit[0]], hit[1]) if hit is not None else None


def _at(eras: Any, position: Mapping[str, int], version: str, default: Any = None) -> Any:
    """The value of the last era that began by ``version``."""
    found = default
    for since, value in eras or ():
        if position[since] <= position[version]:
            found = value
    return found


@lru_cache(maxsize=64)
def catalogued(version: str) -> Release:
    """A release of the catalogue. KeyError if it was not read."""
    position = {name: index for index, name in enumerate(catalog.versions())}
    here = position[version]
    flags: dict[str, Flag] = {}
    for name, entry in catalog.entries().items():
        if not position[entry["first"]] <= here <= position[entry["last"]]:
            continue
        deprecated = entry.get("deprecated")
        flags[name] = Flag(
            name,
            kind=_at(entry.get("kinds"), position, version, entry["kind"]),
            default=_at(entry["defaults"], position, version),
            choices=tuple(_at(entry.get("choices"), position, version) or ()),
            aliases=tuple(_at(entry.get("aliases"), position, version) or ()),
            negations=tuple(_at(entry.get("negations"), position, version) or ()),
            deprecated=bool(deprecated) and position[deprecated[0]] <= here <= position[deprecated[1]],
            bare_values="optional value" in _at(entry.get("value_style"), position, version, ""),
        )
    return Release(version, version, Source.CATALOGUE, flags)


def nearest(version: str) -> str:
    """The newest release read that is no newer than ``version``; the oldest if all are newer."""
    key = version_key(public(version))
    older = [name for name in catalog.versions() if version_key(name) <= key]
    return older[-1] if older else catalog.versions()[0]


def release(version: str, listed: Mapping[str, Any] | None = None) -> Release:
    """The flags of ``version``. ``listed`` is the list read from an installed vLLM of that version
    (``help_text.read_help``), used where the catalogue lacks it; failing both the nearest older one."""
    plain = public(version)
    if plain in catalog.versions():
        return _build_of(version, plain)
    if listed:
        return Release(version, plain, Source.HOST, flags_from(listed))
    stand_in = nearest(version)
    return Release(version, stand_in, Source.NEAREST, catalogued(stand_in).flags)


@lru_cache(maxsize=256)
def _build_of(version: str, plain: str) -> Release:
    """A release of the catalogue under the name that a build of it has."""
    return Release(version, plain, Source.CATALOGUE, catalogued(plain).flags)


def flags_from(listed: Mapping[str, Any]) -> dict[str, Flag]:
    """Flags from the stored form of a list (``flags_as_json``)."""
    return {
        name: Flag(
            name,
            kind=str(entry.get("kind", "str")),
            default=entry.get("default"),
            choices=tuple(entry.get("choices") or ()),
            aliases=tuple(entry.get("aliases") or ()),
            negations=tuple(entry.get("negations") or ()),
            deprecated=bool(entry.get("deprecated")),
        )
        for name, entry in listed.items()
    }


def flags_as_json(flags: Mapping[str, Flag]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "kind": flag.kind,
            "default": flag.default,
            "choices": list(flag.choices),
            "aliases": list(flag.aliases),
            "negations": list(flag.negations),
            "deprecated": flag.deprecated,
        }
        for name, flag in flags.items()
    }
