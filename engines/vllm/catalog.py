"""Every flag of ``vllm serve`` over the releases that were read: ``flags.json`` beside this file.

Per flag: first and last release that has it, its kind (bool, int, int_human, float, str, choice, json,
list) now and by era ("kinds"), its aliases, negations, defaults, closed choices and peculiarities by era
([[since, value], ...]), known values of the newest release, and the first and last release that called it
deprecated. What one release has, from here or from a host's own list, is in ``releases.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FlagFacts:
    flag: str
    first_seen: str
    last_seen: str
    kind: str
    aliases: tuple[str, ...]
    #: (since version, spellings that turn it off)
    negations: tuple[tuple[str, tuple[str, ...]], ...]
    #: (since version, default on the command line; None where vLLM decides at start)
    defaults: tuple[tuple[str, Any], ...]
    known: tuple[Any, ...]
    #: the first and the last release that called it deprecated
    deprecated: tuple[str, str] | None = None

    @property
    def takes_value(self) -> bool:
        return self.kind != "bool"

    @property
    def all_negations(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for _, names in self.negations for name in names))


@lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("flags.json").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def all_flags() -> Mapping[str, FlagFacts]:
    """Facts by flag name (``--max-model-len``)."""
    return {
        name: FlagFacts(
            flag=name,
            first_seen=entry["first"],
            last_seen=entry["last"],
            kind=entry["kind"],
            aliases=tuple(dict.fromkeys(name for _, names in entry.get("aliases", ()) for name in names)),
            negations=tuple((since, tuple(names)) for since, names in entry.get("negations", ())),
            defaults=tuple((since, value) for since, value in entry["defaults"]),
            known=tuple(entry.get("known", ())),
            deprecated=tuple(entry["deprecated"]) if "deprecated" in entry else None,
        )
        for name, entry in _document()["flags"].items()
    }


def versions() -> tuple[str, ...]:
    """Every release that was read, oldest first."""
    return tuple(_document()["versions"])


def newest_release() -> str:
    return versions()[-1]


def entries() -> Mapping[str, Mapping[str, Any]]:
    """The catalogue as it is stored, by flag."""
    return _document()["flags"]


@lru_cache(maxsize=1)
def spellings() -> Mapping[str, tuple[str, bool]]:
    """Each way to write a flag -> (its name, whether this spelling turns it off)."""
    found: dict[str, tuple[str, bool]] = {}
    for name, facts in all_flags().items():
        for negation in facts.all_negations:
            found.setdefault(negation, (name, True))
        for alias in facts.aliases:
            found.setdefault(alias, (name, False))
    found.update({name: (name, False) for name in all_flags()})
    # today's meaning; up to 0.11 "-O" stood for --compilation-config
    found["-O"] = ("--optimization-level", False)
    return found


def resolve(written: str) -> tuple[str, bool] | None:
    """The flag that vLLM takes ``written`` for, and whether it turns it off; None if unknown.

    ``written`` has no value attached. Underscores, dotted keys of JSON flags and unambiguous beginnings
    (argparse accepts those) are understood. An ambiguous beginning is unknown.
    """
    head, dot, _ = written.partition(".")
    name = head.replace("_", "-") if head.startswith("--") else head
    known = spellings()
    if name in known:
        return known[name]
    if dot or not name.startswith("--") or len(name) < 4:
        return None
    candidates = {known[spelling] for spelling in known if spelling.startswith(name)}
    return candidates.pop() if len(candidates) == 1 else None
