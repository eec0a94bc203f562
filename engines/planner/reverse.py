"""The other way round: so many requests of such a length; which share, cache type, cards?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engines.planner.estimate import Estimate, Past, estimate
from engines.planner.flags import Card, Flags
from engines.planner.model import Model
from engines.vllm.notes import Unreadable

#: shares beyond this run out of memory at peaks
HIGHEST_SHARE = 0.95


@dataclass(frozen=True)
class Answer:
    """One way to carry what was asked for: the flags that differ, and the estimate with them."""

    utilization: float
    cache_type: str
    cards: int
    found: Estimate


def ways(
    model: Model,
    flags: Flags,
    card: Card,
    version: str | None,
    requests: int,
    length: int,
    *,
    most_cards: int = 8,
    past: Sequence[Past] = (),
    files: int = 0,
) -> list[Answer]:
    """Ways to run ``requests`` of ``length`` tokens at once, on the fewest cards that do."""
    out: list[Answer] = []
    kinds = ["auto"] if not card.fp8 else ["auto", "fp8"]
    if flags.kv_cache_dtype not in kinds:
        kinds.insert(0, flags.kv_cache_dtype)
    cards = 1
    while cards <= most_cards:
        for kind in kinds:
            asked = replace(
                flags,
                tensor_parallel_size=cards,
                pipeline_parallel_size=1,
                kv_cache_dtype=kind,
                max_model_len=max(flags.max_model_len or 0, length),
                length_auto=False,
                max_num_seqs=max(flags.max_num_seqs or 0, requests),
                num_gpu_blocks_override=None,
                kv_cache_memory_bytes=None,
            )
            answer = _smallest_share(model, asked, card, version, requests, length, past, files)
            if answer is not None:
                out.append(answer)
        if out:
            break
        cards *= 2
    return out


def carries(found: Estimate, requests: int, length: int) -> bool:
    """Whether ``requests`` of ``length`` tokens fit at once, the page withheld left out."""
    return found.starts and found.pool.request_blocks(length) * requests <= found.pool.usable_blocks


def _smallest_share(
    model: Model,
    flags: Flags,
    card: Card,
    version: str | None,
    requests: int,
    length: int,
    past: Sequence[Past],
    files: int,
) -> Answer | None:
    def at(percent: int) -> Estimate | None:
        try:
            asked = replace(flags, gpu_memory_utilization=percent / 100)
            return estimate(model, asked, replace(card, free_bytes=None), version, past=past, files=files)
        except Unreadable:
            return None

    low, high = 5, round(HIGHEST_SHARE * 100)
    best = at(high)
    if best is None or not carries(best, requests, length):
        return None
    while low < high:
        middle = (low + high) // 2
        found = at(middle)
        if found is not None and carries(found, requests, length):
            best, high = found, middle
        else:
            low = middle + 1
    return Answer(high / 100, flags.kv_cache_dtype, flags.tensor_parallel_size, best)
