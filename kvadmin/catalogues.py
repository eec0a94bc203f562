"""Translations: compiled from the .po files where they stand, or into kvadmin's home."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from django.conf import settings

CATALOGUE = Path("LC_MESSAGES", "django")


def compile_catalogues(source: Path | None = None, fallback: Path | None = None) -> int:
    """Compile every catalogue whose .mo is missing or older than its .po; returns how many.

    A .mo goes beside its .po. Where that folder cannot be written, as in a checkout that another user
    owns, it goes into ``fallback``, which settings.LOCALE_PATHS names too.
    """
    source = source or settings.BASE_DIR / "locale"
    fallback = fallback or settings.HOME / "locale"
    compiled = 0
    for po in sorted(source.glob(f"*/{CATALOGUE}.po")):
        beside = po.with_suffix(".mo")
        other = fallback / beside.relative_to(source)
        if not _is_current(beside, po) and not _is_current(other, po):
            content = _compiled(po)
            try:
                _write(beside, content)
            except OSError:
                other.parent.mkdir(parents=True, exist_ok=True)
                _write(other, content)
            compiled += 1
        if _is_current(beside, po):
            # the other comes first in LOCALE_PATHS and would hide this one
            other.unlink(missing_ok=True)
    return compiled


def _is_current(mo: Path, po: Path) -> bool:
    return mo.exists() and mo.stat().st_mtime_ns >= po.stat().st_mtime_ns


def _compiled(po: Path) -> bytes:
    with po.open("rb") as file:
        catalogue = read_po(file, locale=po.parts[-3], abort_invalid=True)
    with tempfile.TemporaryFile() as file:
        write_mo(file, catalogue)
        file.seek(0)
        return file.read()


def _write(path: Path, content: bytes) -> None:
    """In one step: another process may be reading the old file."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_bytes(content)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
