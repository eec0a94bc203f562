"""Numbers that arrive as text in an address or a header."""

from __future__ import annotations

#: PostgreSQL's bigint holds every number of fewer digits
_DIGITS = 19


def whole_number(text: str | None) -> int | None:
    """A number from 0 that the database can hold; None for anything else, also for "²" and "٣"."""
    return int(text) if text and len(text) < _DIGITS and text.isascii() and text.isdigit() else None
