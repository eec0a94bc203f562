"""Reading one field after another from a config.json nobody vouches for.

Every refusal is an Unreadable with a sentence that names the field and what is wrong with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from engines.vllm.notes import Unreadable, error, gettext_noop

#: bytes of a config.json that are looked at; the largest public ones are under 100 KB
LARGEST = 2_000_000
#: objects within objects that are looked at
DEEPEST = 40


def refuse(code: str, message: str, *, remedy: str = "", **params: Any) -> Unreadable:
    return Unreadable(error(code, message, field="config", remedy=remedy, **params))


def shown(value: Any) -> str:
    """A value short enough for a sentence."""
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, str) else value
    return text if len(text) <= 60 else text[:57] + "..."


def parse(source: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
    """The object in a config.json. Raises Unreadable with a sentence."""
    if isinstance(source, Mapping):
        data: Any = dict(source)
    else:
        if len(source) > LARGEST:
            raise refuse(
                "config_large",
                gettext_noop("This file has %(size)s MB; a config.json has some kilobytes."),
                remedy=gettext_noop("Give the model's config.json, not its weights or its index."),
                size=f"{len(source) / 1e6:.1f}",
            )
        try:
            data = json.loads(source)
        except RecursionError:
            raise _too_deep() from None
        except UnicodeDecodeError:
            raise refuse("config_encoding", gettext_noop("This config.json is not UTF-8 text.")) from None
        except ValueError as problem:
            raise refuse(
                "config_json",
                gettext_noop("This config.json is not JSON: %(problem)s."),
                remedy=gettext_noop("Copy the whole file, from the first brace to the last."),
                problem=shown(str(problem)),
            ) from None
    if not isinstance(data, dict):
        raise refuse("config_object", gettext_noop("A config.json holds one object in braces."))
    if not data:
        raise refuse("config_empty", gettext_noop("This config.json is empty."))
    if _depth(data) > DEEPEST:
        raise _too_deep()
    return data


def _too_deep() -> Unreadable:
    return refuse("config_deep", gettext_noop("This config.json nests too deeply to be a model's."))


def _depth(data: Any) -> int:
    """How deep objects and lists nest; stops counting past DEEPEST, so cycles end too."""
    level, nodes = 0, [data]
    while nodes and level <= DEEPEST:
        following: list[Any] = []
        for node in nodes:
            inner: Iterable[Any] = node.values() if isinstance(node, dict) else node
            following.extend(one for one in inner if isinstance(one, dict | list))
        # an honest config is small; one made to explode is cut off
        if len(following) > 100_000:
            return DEEPEST + 1
        level, nodes = level + 1, following
    return level


class Fields:
    """Typed reads of one object. A value that is null counts as absent, as it does to transformers."""

    def __init__(self, data: Mapping[str, Any], where: str = ""):
        self.data = data
        self.where = where

    def get(self, *names: str) -> Any:
        """The first of ``names`` that is there and not null."""
        return next((self.data[name] for name in names if self.data.get(name) is not None), None)

    def name_of(self, *names: str) -> str:
        return next((name for name in names if self.data.get(name) is not None), names[0])

    def whole(self, *names: str, default: int | None = None, low: int = 1, high: int = 10**9) -> int:
        """A whole number within bounds; the default, or a refusal where there is none."""
        value = self.get(*names)
        if value is None:
            if default is not None:
                return default
            raise refuse(
                "config_missing",
                gettext_noop("“%(name)s” is missing from this config.json."),
                remedy=gettext_noop("Give the file as the model's publisher wrote it."),
                name=self.where + names[0],
            )
        return self._bounded(self.name_of(*names), value, low, high)

    def _bounded(self, name: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise refuse(
                "config_number",
                gettext_noop("“%(name)s” is %(value)s; it must be a whole number."),
                name=self.where + name,
                value=shown(value),
            )
        if not low <= value <= high:
            raise refuse(
                "config_range",
                gettext_noop("“%(name)s” is %(value)s; it must be from %(low)s to %(high)s."),
                name=self.where + name,
                value=shown(value),
                low=low,
                high=high,
            )
        return value

    def perhaps(self, *names: str, low: int = 0, high: int = 10**9) -> int | None:
        value = self.get(*names)
        return None if value is None else self._bounded(self.name_of(*names), value, low, high)

    def number(self, name: str, default: float) -> float:
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise refuse(
                "config_number",
                gettext_noop("“%(name)s” is %(value)s; it must be a number."),
                name=self.where + name,
                value=shown(value),
            )
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        value = self.get(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise refuse(
                "config_flag",
                gettext_noop("“%(name)s” is %(value)s; it must be true or false."),
                name=self.where + self.name_of(*names),
                value=shown(value),
            )
        return value

    def text(self, *names: str, default: str = "") -> str:
        value = self.get(*names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise refuse(
                "config_text",
                gettext_noop("“%(name)s” is %(value)s; it must be text."),
                name=self.where + self.name_of(*names),
                value=shown(value),
            )
        return value

    def object(self, *names: str) -> Fields | None:
        value = self.get(*names)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise refuse(
                "config_inner",
                gettext_noop("“%(name)s” is %(value)s; it must be an object."),
                name=self.where + self.name_of(*names),
                value=shown(value),
            )
        return Fields(value, f"{self.where}{self.name_of(*names)}.")

    def items(self, *names: str) -> list[Any] | None:
        value = self.get(*names)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > 100_000:
            raise refuse(
                "config_list",
                gettext_noop("“%(name)s” is %(value)s; it must be a list."),
                name=self.where + self.name_of(*names),
                value=shown(value),
            )
        return value
