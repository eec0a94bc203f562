"""The files of one start on its host. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class NotWritable(ValueError):
    """A name or a value that a shell cannot carry; ``name`` says which."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


def env_file(variables: Mapping[str, str]) -> bytes:
    """NAME='value' lines for sh; holds secrets, so the file is of mode 0600."""
    lines = []
    for name, value in variables.items():
        if not _NAME.match(name) or "\0" in value:
            raise NotWritable(name)
        lines.append(f"{name}={shlex.quote(value)}\n")
    return "".join(lines).encode()


def argv_file(argv: Sequence[str]) -> bytes:
    """One line for sh that sets $1, $2, … to the command and its arguments."""
    for word in argv:
        if "\0" in word:
            raise NotWritable(word.replace("\0", "?"))
    return f"set -- {' '.join(shlex.quote(word) for word in argv)}\n".encode()


def start_directory(work_dir: str, engine_id: int, marker: str) -> str:
    return f"{work_dir.rstrip('/')}/engines/{engine_id}/{marker}"


def unit_name(engine_id: int, marker: str) -> str:
    """The systemd user unit, without its suffix; unique to one start."""
    return f"kvadmin-{engine_id}-{marker[:8]}"
