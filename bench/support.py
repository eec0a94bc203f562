"""What benchmarks share: a database of their own, and how they print."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def prepare(*, valkey: bool = False) -> None:
    """Services and Django. Before anything of the product is imported.

    A throw-away embedded PostgreSQL, or the server that DATABASE_URL names; with ``valkey`` one of that too.
    """
    import django

    from tests.support import services

    if not valkey:
        os.environ.setdefault("VALKEY_URL", "redis://127.0.0.1:1/0")  # not used, so not started
    services.begin()
    os.environ["DJANGO_SETTINGS_MODULE"] = "kvadmin.settings"
    django.setup()


@contextmanager
def database() -> Iterator[None]:
    """A fresh, migrated database, dropped at the end."""
    from django.test.utils import setup_databases, teardown_databases

    made = setup_databases(verbosity=0, interactive=False)
    try:
        yield
    finally:
        teardown_databases(made, verbosity=0)


def tell(figures: dict[str, Any], lines: list[str], as_json: bool) -> None:
    """The figures in words, and with --json as one object in the last line."""
    print("\n".join(lines), flush=True)
    if as_json:
        print(json.dumps(figures), flush=True)
