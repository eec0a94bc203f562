"""Reads what ``vllm serve --help=all`` prints into flags: how a release that the catalogue lacks is known.

argparse's text says names, choices and defaults; kinds follow from these, and from the same flag in other
releases where the text leaves them open. Ask with COLUMNS set wide, so that nothing is broken over lines.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from engines.vllm import catalog
from engines.vllm.releases import Flag

#: flags that every ``vllm serve`` has had: without them the text is none of its help
LANDMARKS = ("--max-model-len", "--tensor-parallel-size", "--served-model-name")
_ENTRY = re.compile(r"^ {2}(-{1,2}[A-Za-z].*)$")
_OPTION = re.compile(r"(-{1,2}[A-Za-z][\w-]*)(?:[ =](.+?))?(?=, -{1,2}[A-Za-z]|$)")
_DEFAULT = re.compile(r"\(default: ((?:(?!\(default: ).)*)\)\s*$", re.DOTALL)
_DEPRECATED = re.compile(
    r"^\W*(?:this (?:flag|argument|option) is )?deprecated\b"
    r"|^\W*[\w-]+ (?:is|was|has been) (?:now )?deprecated\b"
    r"|\bdeprecated and will be removed\b",
    re.IGNORECASE,
)


class NotHelp(ValueError):
    """The text is not the help of ``vllm serve``, or only a part of it."""


def read_help(text: str) -> dict[str, Flag]:
    """Flags by name. Raises NotHelp."""
    flags: dict[str, Flag] = {}
    for header, description in _entries(text):
        flag = _flag(header, description)
        if flag is not None:
            flags[flag.name] = flag
    missing = [name for name in LANDMARKS if name not in flags]
    if missing:
        raise NotHelp(", ".join(missing))
    return flags


def _entries(text: str) -> list[tuple[str, str]]:
    """(options, description) of each entry, the description's lines joined."""
    found: list[tuple[str, list[str]]] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        entry = _ENTRY.match(line)
        if entry:
            header, _gap, rest = _split_header(entry[1])
            found.append((header, [rest] if rest else []))
        elif found and line.startswith("   ") and line.strip():
            found[-1][1].append(line.strip())
        elif line.strip() and not line.startswith(" "):
            # a heading: what follows belongs to no entry until the next one begins
            found.append(("", []))
    return [(header, " ".join(lines)) for header, lines in found if header]


def _split_header(line: str) -> tuple[str, str, str]:
    match = re.match(r"(.*?)( {2,})(\S.*)$", line)
    return (match[1], match[2], match[3]) if match else (line.rstrip(), "", "")


def _flag(header: str, description: str) -> Flag | None:
    options = [(match[1], match[2] or "") for match in _OPTION.finditer(header)]
    names = [name.replace("_", "-") for name, _ in options if name.startswith("--")]
    if not names or names[0] in {"--help", "--version"}:
        return None
    name = names[0]
    shape = next((metavar for _, metavar in options if metavar), "")
    negations = tuple(other for other in names[1:] if _negates(name, other))
    aliases = tuple(
        option for option, _ in options if option.replace("_", "-") != name and option not in negations
    )
    default = _default(description)
    choices = _choices(shape)
    return Flag(
        name,
        kind=_kind(name, shape, choices, default, description),
        default=default,
        choices=choices,
        aliases=aliases,
        negations=negations,
        deprecated=bool(_DEPRECATED.search(description)),
    )


def _negates(name: str, other: str) -> bool:
    bare = name.removeprefix("--")
    if other == f"--no-{bare}":
        return True
    for on, off in (("enable-", "disable-"), ("disable-", "enable-")):
        if bare.startswith(on) and other == f"--{off}{bare.removeprefix(on)}":
            return True
    return False


def _choices(shape: str) -> tuple[Any, ...]:
    braces = re.match(r"\{([^}]*)\}", shape)
    if braces:
        words = [word.strip() for word in braces[1].split(",")]
        return tuple(int(word) if word.isdigit() else word for word in words if word and word != "None")
    if shape.startswith("['"):
        try:
            return tuple(ast.literal_eval(shape))
        except (ValueError, SyntaxError):
            return ()
    return ()


def _default(description: str) -> Any:
    match = _DEFAULT.search(description)
    if match is None:
        return None
    text = match[1].strip()
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text[:200]
    return value if isinstance(value, bool | int | float | str | list | dict | type(None)) else str(value)


def _kind(name: str, shape: str, choices: tuple[Any, ...], default: Any, description: str) -> str:
    if not shape:
        return "bool"
    if "..." in shape:
        return "list"
    if choices:
        return "choice"
    known = catalog.all_flags().get(name)
    if known is not None and known.kind not in {"bool", "list", "choice"}:
        return known.kind
    if "valid JSON" in description or "JSON keys passed individually" in description:
        return "json"
    if "human-readable integers" in description:
        return "int_human"
    if isinstance(default, bool):
        return "str"
    if isinstance(default, int):
        return "int"
    return "float" if isinstance(default, float) else "str"
