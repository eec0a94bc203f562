"""A host's facts as its pages show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MIB = 1024**2


@dataclass(frozen=True)
class GpuSummary:
    """All GPUs of a host on one line. ``used`` and ``total`` in bytes, None where a card does not say."""

    text: str
    used: int | None
    total: int | None

    @property
    def share(self) -> float | None:
        return self.used / self.total if self.total and self.used is not None else None


def gpu_summary(facts: dict[str, Any]) -> GpuSummary | None:
    """None while nothing is known or there is no GPU."""
    gpus = facts.get("gpus") or []
    if not gpus:
        return None
    names: dict[str, int] = {}
    for gpu in gpus:
        names[gpu.get("name") or "GPU"] = names.get(gpu.get("name") or "GPU", 0) + 1
    used = [gpu.get("memory_used_mib") for gpu in gpus]
    total = [gpu.get("memory_total_mib") for gpu in gpus]
    return GpuSummary(
        text=", ".join(f"{count} × {name}" for name, count in names.items()),
        used=None if None in used else sum(used) * MIB,
        total=None if None in total else sum(total) * MIB,
    )


def gpus_of(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The probe's GPUs with ``used``, ``total`` in bytes and ``share`` beside what it found."""
    rows = []
    for gpu in facts.get("gpus") or []:
        used, total = gpu.get("memory_used_mib"), gpu.get("memory_total_mib")
        rows.append(
            {
                **gpu,
                "used": used * MIB if used is not None else None,
                "total": total * MIB if total is not None else None,
                "share": used / total if used is not None and total else None,
                "processes": [
                    {**process, "bytes": process["memory_mib"] * MIB if process.get("memory_mib") else None}
                    for process in gpu.get("processes") or []
                ],
            }
        )
    return rows
