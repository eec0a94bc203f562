"""Bounds of histogram buckets by the number that rows keep instead."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection


def layouts(numbers: Iterable[int]) -> dict[int, tuple[float, ...]]:
    """Upper bounds, ascending, the last infinity, of each layout; unknown numbers are left out."""
    wanted = list(numbers)
    if not wanted:
        return {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, bounds FROM engines_bucket_layout WHERE id = ANY(%s)", [wanted])
        return {number: tuple(bounds) for number, bounds in cursor.fetchall()}
