"""Imports every module that registers a flow, once."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import engines.operations as package

_PLAIN = {"base", "load", "runner", "begin"}


@cache
def load_flows() -> None:
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in _PLAIN:
            importlib.import_module(f"{package.__name__}.{module.name}")
