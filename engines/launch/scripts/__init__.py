"""The sh texts that run on a host."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def script(name: str) -> str:
    return (Path(__file__).parent / f"{name}.sh").read_text()
