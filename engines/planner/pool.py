"""From memory to pages, tokens and requests, and back.

Source: vLLM's v1/core/kv_cache_utils.py (get_kv_cache_config_from_groups, get_kv_cache_capacity,
get_max_concurrency_for_kv_cache_config, _check_enough_kv_cache_memory, estimate_max_model_len).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.planner.caches import Load
from engines.planner.groups import Layout
from engines.planner.rules import Rules


@dataclass(frozen=True)
class Pool:
    """The pages of an engine. ``stages`` is the layout on each pipeline stage."""

    layout: Layout
    stages: tuple[Layout, ...]
    rules: Rules
    load: Load
    blocks: int
    #: bytes of memory for the cache per stage, after num-gpu-blocks-override
    memory: tuple[int, ...]

    @property
    def block_bytes(self) -> int:
        """Of the fullest card."""
        return max((stage.block_bytes for stage in self.stages), default=0)

    @property
    def usable_blocks(self) -> int:
        """One page is never given out."""
        return max(self.blocks - 1, 0)

    def request_blocks(self, length: int) -> int:
        return self.layout.request_pages(length, self.load)

    def concurrency(self, length: int) -> float:
        """Requests of ``length`` tokens at once, as vLLM logs it."""
        if not self.layout.groups or length < 1:
            return 0.0
        pages = self.request_blocks(length)
        if self.rules.tokens_by == "blocks":
            return self.blocks * self.layout.smallest_block * self.load.split / length
        return self.blocks / pages if pages else 0.0

    def tokens(self, length: int) -> int:
        """Tokens of the pool as vLLM logs it, for a max-model-len of ``length``."""
        if not self.layout.groups:
            return 0
        if self.rules.tokens_by == "concurrency":
            return int(self.concurrency(length) * length)
        block = self.layout.smallest_block * self.load.split
        if self.rules.tokens_by == "groups":
            return self.blocks // len(self.layout.groups) * block
        return self.blocks * block

    def at_once(self, lengths: Sequence[tuple[int, float]]) -> float:
        """Requests at once for a mix: pairs of a length and its share of the requests.

        Long and short requests share the pages, so the mean of their pages counts, not of their numbers.
        """
        shares = sum(share for _, share in lengths)
        pages = sum(self.request_blocks(length) * share for length, share in lengths)
        return self.usable_blocks * shares / pages if pages else 0.0

    def fits(self, length: int) -> bool:
        """A single request of ``length`` tokens fits on every stage: vLLM's condition for a start."""
        return all(
            stage.request_bytes(length, self.load) <= memory
            for stage, memory in zip(self.stages, self._checked(), strict=True)
        )

    def needed(self, length: int) -> int:
        """Bytes for one request of ``length`` tokens on the fullest stage."""
        return max((stage.request_bytes(length, self.load) for stage in self.stages), default=0)

    def _checked(self) -> list[int]:
        if not self.rules.null_block_in_check:
            return list(self.memory)
        return [memory - stage.block_bytes for stage, memory in zip(self.stages, self.memory, strict=True)]

    def longest(self, limit: int) -> int:
        """The longest max-model-len up to ``limit`` that still starts; 0 where none does.

        vLLM's binary search over lengths. Each stage is asked alone and the first that fails names its
        own figure; the smallest is what starts.
        """
        if not self.layout.groups:
            return limit
        return min(
            _longest(stage, self.load, memory, limit)
            for stage, memory in zip(self.stages, self._checked(), strict=True)
        )


def _longest(stage: Layout, load: Load, memory: int, limit: int) -> int:
    left, right, found = 1, limit, 0
    if memory <= 0 or stage.request_bytes(1, load) > memory:
        return 0
    while left <= right:
        middle = (left + right) // 2
        if stage.request_bytes(middle, load) <= memory:
            found, left = middle, middle + 1
        else:
            right = middle - 1
    return found


def make_pool(
    layout: Layout,
    stages: Sequence[Layout],
    memory: Sequence[int],
    rules: Rules,
    load: Load,
    *,
    override: int | None = None,
) -> Pool:
    """The pool that ``memory`` bytes per stage hold; the stage with the fewest pages decides for all."""
    counts = [
        max(int(available) // stage.block_bytes, 0)
        for stage, available in zip(stages, memory, strict=True)
        if stage.block_bytes
    ]
    blocks = min(counts, default=0)
    given = [int(one) for one in memory]
    if override is not None:
        blocks = override
        given = [override * stage.block_bytes for stage in stages]
    return Pool(layout, tuple(stages), rules, load, blocks, tuple(given))
