"""Versions of vLLM in order: ``0.6.3.post1``, ``0.33.0+cpu``, ``0.34.0rc1``, ``0.34.0.dev12+g1a2b3c``."""

from __future__ import annotations

import re

_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)(?:[.-]?(a|b|rc|dev|post)[.-]?(\d*))?", re.IGNORECASE)
_RANKS = {"dev": 0, "a": 1, "b": 2, "rc": 3, "": 4, "post": 5}


def public(version: str) -> str:
    """Without what a build adds behind ``+``."""
    return version.strip().partition("+")[0]


def version_key(version: str) -> tuple[tuple[int, ...], int, int]:
    """Sorts versions; text that is none sorts before all of them."""
    match = _VERSION.match(version.strip())
    if match is None:
        return ((-1,), 0, 0)
    numbers = tuple(int(part) for part in match[1].split("."))
    return ((*numbers, 0, 0, 0, 0)[:4], _RANKS[(match[2] or "").lower()], int(match[3] or 0))


def before(version: str, other: str) -> bool:
    """Whether ``version`` is older than ``other``; builds of one version are equal."""
    return version_key(public(version)) < version_key(public(other))
