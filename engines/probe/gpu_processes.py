"""Whose the processes on GPUs are. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any


def mark_ours(gpus: Iterable[dict[str, Any]], *, markers: Collection[str], pids: Collection[int]) -> None:
    """Set each process's ``ours``: it bears the marker of a start that we made on this host, or it is one
    of the recorded processes (``pids``, of this boot). The marker itself is taken out."""
    for gpu in gpus:
        for process in gpu["processes"]:
            marker = process.pop("marker", "")
            process["ours"] = bool(marker and marker in markers) or process["pid"] in pids


def not_ours(gpus: Iterable[dict[str, Any]], indexes: Collection[int] | None = None) -> list[dict[str, Any]]:
    """The GPU processes that kvadmin did not start, each with its ``gpu`` index; of all GPUs or of some."""
    return [
        {**process, "gpu": gpu["index"]}
        for gpu in gpus
        if indexes is None or gpu["index"] in indexes
        for process in gpu["processes"]
        if not process["ours"]
    ]
