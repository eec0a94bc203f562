"""Common models by their Hugging Face names, for a plan before anything lies on a host. Data: known.json,
the fields of the public config.json files that decide memory."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _table() -> dict[str, dict[str, Any]]:
    return json.loads((Path(__file__).parent / "known.json").read_text())


def known_config(name: str) -> dict[str, Any] | None:
    """The config.json of a model by its name, in any case; None where the table lacks it."""
    wanted = name.strip().strip("/").lower()
    return next((config for known, config in _table().items() if known.lower() == wanted), None)


def known_names() -> list[str]:
    return list(_table())
