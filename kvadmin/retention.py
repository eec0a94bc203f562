"""Deleting what is older than is kept: a piece at a time, so that no lock is held for long."""

from __future__ import annotations

from typing import Any

from django.db import models


def delete_in_pieces(rows: models.QuerySet[Any], *, at_once: int) -> int:
    """Delete the rows and what belongs to them, ``at_once`` in a transaction; how many rows there were."""
    count = 0
    while True:
        keys = list(rows.order_by("pk").values_list("pk", flat=True)[:at_once])
        if not keys:
            return count
        rows.model._default_manager.filter(pk__in=keys).delete()
        count += len(keys)
