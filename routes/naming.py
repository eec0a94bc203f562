"""Names of models: what may be one, and the convention that is hinted at. Pure.

The convention: small letters, the family, the size, then version or make: qwen3-8b-v1, qwen3-32b-awq.
"""

from __future__ import annotations

import re

from engines.vllm.notes import Note, gettext_noop, info

LONGEST = 200
_ALLOWED = re.compile(r"[\w](?:[\w.:/@+-]*[\w])?")
_SIZE = re.compile(r"(?:\d+x)?\d+(?:\.\d+)?[bmt](?:-?a\d+(?:\.\d+)?b)?")
#: kinds of models that have no size in their name as a rule
_SIZELESS = ("embed", "rerank", "whisper", "bge", "gte", "e5")


def is_name(text: str) -> bool:
    """Whether callers can send it as ``model`` and find it under /v1/models/."""
    return len(text) <= LONGEST and _ALLOWED.fullmatch(text) is not None and "//" not in text


def hints(name: str) -> list[Note]:
    """What of the convention a usable name does not follow; never an error."""
    found: list[Note] = []
    if "/" in name:
        found.append(
            info(
                "name_has_path",
                gettext_noop("“%(name)s” looks like a repository's name."),
                field="name",
                remedy=gettext_noop("A short name such as “%(short)s” outlives a change of repository."),
                name=name,
                short=suggestion(name),
            )
        )
    elif name != name.lower():
        found.append(
            info(
                "name_has_capitals",
                gettext_noop("Small letters are easier to type: “%(short)s”."),
                field="name",
                short=suggestion(name),
            )
        )
    parts = [part for part in re.split(r"[-_:/@]", name.lower()) if part]
    sized = [place for place, part in enumerate(parts) if _SIZE.fullmatch(part)]
    if any(word in name.lower() for word in _SIZELESS):
        return found
    if not sized:
        found.append(
            info(
                "name_has_no_size",
                gettext_noop("The name does not say the model's size, as in qwen3-8b-v1."),
                field="name",
            )
        )
    elif sized[-1] == len(parts) - 1:
        found.append(
            info(
                "name_has_no_version",
                gettext_noop(
                    "The name carries neither version nor make: “%(short)s-v1” or “%(short)s-awq” tells "
                    "the next one apart."
                ),
                field="name",
                short=suggestion(name),
            )
        )
    return found


def suggestion(name: str) -> str:
    """The name as the convention writes it: without the repository's owner, in small letters."""
    return name.rpartition("/")[2].lower().replace("_", "-")
