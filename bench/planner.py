"""Compares what the planner expects with what real starts of vLLM found.

    python -m bench.planner [--starts FILE] [--configs FOLDER] [--json]

Each start (a line of starts.jsonl: flags, settings, memory's terms, blocks) is reckoned three times: given
the memory vLLM found for the cache, which must come out exactly; from card, config and flags alone;
and after one start of another model on the same kind of host is known, the worst of all such pairs.
Refused starts must name vLLM's own longest length.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.support import tell
from engines.planner.estimate import Estimate, Past, estimate
from engines.planner.flags import Card, Flags, flags_of, values_of
from engines.planner.model import Model
from engines.planner.reading import read_model
from engines.planner.rules import GIB

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "h200"
#: pools under this are too small for a bound in percent
LARGE = 40 * GIB


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=Path, default=DATA / "starts.jsonl")
    parser.add_argument("--configs", type=Path, default=None, help="folder of config.json files by model")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


@dataclass
class Case:
    """One start, read."""

    row: dict[str, Any]
    model: Model
    flags: Flags
    card: Card

    @property
    def name(self) -> str:
        return self.row["case"]

    @property
    def version(self) -> str:
        return self.row["vllm"]

    @property
    def blocks(self) -> int | None:
        return self.row.get("num_gpu_blocks") or self.row.get("kv_num_blocks")

    @property
    def available(self) -> int | None:
        """Bytes vLLM found for the cache; of two cards only the log's two decimals are known."""
        exact = self.row.get("available_kv_cache_memory_bytes")
        if exact is not None:
            return exact
        logged = self.row.get("available_gib") or [
            float(one.split()[0]) for one in (self.row.get("log") or {}).get("available_kv", [])
        ]
        return int(min(logged) * GIB) if logged else None

    def found(self, past: tuple[Past, ...] = (), available: int | None = None) -> Estimate:
        return estimate(self.model, self.flags, self.card, self.version, past=past, available=available)

    @property
    def past(self) -> Past | None:
        if self.available is None:
            return None
        return Past(self.model, self.flags, self.card, self.version, self.available)


def cases(starts: Path, configs: Path | None) -> list[Case]:
    folder = configs or starts.parent / "configs"
    rows = [json.loads(line) for line in starts.read_text().splitlines() if line.strip()]
    snapshot = next((row["init_snapshot"] for row in rows if row.get("init_snapshot")), None)
    found = []
    for row in rows:
        here = row.get("init_snapshot") or snapshot or {}
        card = Card(row.get("gpu", "NVIDIA H200"), here.get("total_memory", 150_109_880_320))
        values = values_of(shlex.split(row["flags"]))
        model = read_model(
            (folder / f"{row['model']}.json").read_bytes(), dtype=str(values.get("dtype") or "auto")
        )
        found.append(Case(row, model, flags_of(values), card))
    return found


def given_memory(case: Case) -> tuple[float, str]:
    """Worst relative error of pages, tokens and concurrency when the cache's memory is given."""
    row = case.row
    if not row["ok"]:
        return 0.0, ""
    memory = row.get("available_kv_cache_memory_bytes")
    if memory is None:
        memory = (row.get("kv_tensor_bytes") or [0])[0]
    found = case.found(available=memory)
    pairs = [(found.pool.blocks, case.blocks)]
    if row.get("kv_cache_size_tokens") is not None:
        pairs.append((found.tokens, row["kv_cache_size_tokens"]))
    if row.get("kv_cache_max_concurrency") is not None:
        pairs.append((found.concurrency, row["kv_cache_max_concurrency"]))
    return max(abs(mine - theirs) / theirs for mine, theirs in pairs if theirs), f"{found.pool.blocks:,}"


def refused_length(case: Case) -> tuple[int | None, int | None]:
    """vLLM's longest length and the planner's, of a start refused for its length."""
    match = re.search(r"estimated maximum model length is (\d+)", case.row.get("error") or "")
    if not match:
        return None, None
    return int(match[1]), case.found().longest


def error_of(case: Case, found: Estimate) -> float | None:
    """Relative error of a pool; None where it is too small for one in percent."""
    if not case.row["ok"] or not case.blocks:
        return None
    if case.blocks * found.pool.block_bytes < LARGE:
        return None
    return abs(found.pool.blocks - case.blocks) / case.blocks


def calibrated(case: Case, others: list[Case]) -> float | None:
    """The worst error after one start of another model is known, over all such starts."""
    worst: float | None = None
    for other in others:
        if other is case or other.model == case.model or other.past is None:
            continue
        if other.card.name != case.card.name or other.version != case.version:
            continue
        error = error_of(case, case.found((other.past,)))
        if error is not None:
            worst = max(worst or 0.0, error)
    return worst


def main() -> None:
    arguments = options()
    every = cases(arguments.starts, arguments.configs)
    worst = {"worst_pool_error_given_memory": 0.0, "worst_error_blind": 0.0, "worst_error_calibrated": 0.0}
    weights_worst = memory_worst = 0.0
    lengths_off = 0
    names = ("pages", "expected", "given", "blind", "calibr.", "weights", "memory")
    head = f"{'case':28} " + " ".join(f"{name:>{9 if name in names[:2] else 8}}" for name in names)
    lines = [head, "-" * len(head)]
    for case in every:
        found = case.found()
        given, _ = given_memory(case)
        blind, after = error_of(case, found), calibrated(case, every)
        worst["worst_pool_error_given_memory"] = max(worst["worst_pool_error_given_memory"], given)
        worst["worst_error_blind"] = max(worst["worst_error_blind"], blind or 0)
        worst["worst_error_calibrated"] = max(worst["worst_error_calibrated"], after or 0)
        real = case.row.get("model_memory_usage")
        heavy = abs(found.weights.total - real) / real if real else None
        weights_worst = max(weights_worst, heavy or 0)
        off = None if case.available is None else (found.available - case.available) / GIB
        memory_worst = max(memory_worst, abs(off or 0))
        columns = [
            f"{case.name:28}",
            f"{case.blocks or 0:>9,}",
            f"{found.pool.blocks:>9,}",
            percent(given if case.row["ok"] else None),
            percent(blind),
            percent(after),
            percent(heavy),
            f"{off:>+6.3f} GiB" if off is not None else "",
        ]
        theirs, mine = refused_length(case)
        if theirs is not None:
            lengths_off += int(theirs != mine)
            columns.append(f" longest {theirs:,}, expected {mine:,}")
        elif not case.row["ok"]:
            columns.append(" refused, " + ("expected" if not found.starts else "not expected"))
        lines.append(" ".join(columns))
    lines += [
        "",
        f"given the memory: {worst['worst_pool_error_given_memory']:.4%} at most (goal 0)",
        f"blind: {worst['worst_error_blind']:.3%} at most (goal 1.5%)",
        f"one start known: {worst['worst_error_calibrated']:.3%} at most (goal 0.5%)",
        f"weights: {weights_worst:.3%} at most (goal 1%)",
        f"memory for the cache: {memory_worst:.3f} GiB at most (goal 0.5)",
        f"refused lengths that differ: {lengths_off}",
    ]
    figures = {
        **worst,
        "worst_weights_error": weights_worst,
        "worst_memory_gib": memory_worst,
        "refused_lengths_off": lengths_off,
        "starts": len(every),
    }
    tell(figures, lines, arguments.json)


def percent(share: float | None) -> str:
    return f"{share:>8.3%}" if share is not None else " " * 8


if __name__ == "__main__":
    main()
