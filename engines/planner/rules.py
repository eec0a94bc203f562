"""What moved between vLLM's versions in how it sizes the cache. One row per rule, with its first version.

Sources: vLLM's own v1/core/kv_cache_utils.py, v1/kv_cache_interface.py, v1/worker/gpu_worker.py,
engine/arg_utils.py and platforms/interface.py of the releases 0.6.3 to 0.33.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

GIB = 2**30
MIB = 2**20

Version = tuple[int, int, int]

#: what is assumed where a host's version is not known
NEWEST: Version = (0, 33, 0)


def version_of(text: str | None) -> Version | None:
    """``0.25.1``, ``0.32.0+cpu`` or ``0.6.3.post1`` as three numbers; None where it is none."""
    match = re.match(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", text or "")
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


@dataclass(frozen=True)
class Rules:
    """How one version of vLLM sizes the cache."""

    version: Version

    @property
    def text(self) -> str:
        return ".".join(str(part) for part in self.version)

    @property
    def first_engine(self) -> bool:
        """The first engine (V0): default up to 0.7; no groups of layers, pages of 16."""
        return self.version < (0, 8, 0)

    @property
    def utilization(self) -> float:
        """Default of gpu-memory-utilization."""
        return 0.92 if self.version >= (0, 20, 0) else 0.90

    @property
    def group_slack(self) -> float:
        """Layers of unlike kinds share groups of the larger count while max < min x this."""
        if self.version >= (0, 17, 0):
            return 1.5
        return 1.25 if self.version >= (0, 12, 0) else 1.0

    @property
    def tokens_by(self) -> str:
        """How the line "KV cache size: N tokens" is reckoned."""
        if self.version >= (0, 20, 1):
            return "concurrency"
        return "groups" if self.version >= (0, 9, 0) else "blocks"

    @property
    def batches_in_flight(self) -> int:
        """Scheduled batches whose tokens a window keeps beside itself (two with async scheduling)."""
        return 2 if self.version >= (0, 26, 0) else 1

    @property
    def null_block_in_check(self) -> bool:
        """The start's check leaves out the one page that is never given out."""
        return self.version >= (0, 29, 0)

    @property
    def graphs_counted(self) -> bool:
        """The estimate for CUDA graphs is taken from the cache's memory (by model runner 1 only)."""
        return self.version >= (0, 20, 0)

    @property
    def runner_two(self) -> bool:
        """Dense models run on model runner 2, which makes no estimate for graphs."""
        return self.version >= (0, 24, 0)

    @property
    def hybrid_prefix_caching(self) -> bool:
        """Prefix caching is on by default also for models with state layers."""
        return self.version >= (0, 28, 0)

    @property
    def prefix_caching(self) -> bool:
        return not self.first_engine

    @property
    def async_scheduling(self) -> bool:
        return self.version >= (0, 14, 0)

    @property
    def cache_bytes_flag(self) -> bool:
        """--kv-cache-memory-bytes exists."""
        return self.version >= (0, 10, 2)

    @property
    def auto_length(self) -> bool:
        """--max-model-len auto exists."""
        return self.version >= (0, 14, 0)

    @property
    def hybrid_groups(self) -> bool:
        """Windows and chunks get groups of their own; before, every layer kept every token."""
        return self.version >= (0, 9, 0)

    @property
    def windows_hold_batch(self) -> bool:
        return self.version >= (0, 9, 0)

    def batched_tokens(self, card_bytes: int, card_name: str) -> int:
        """Default of max-num-batched-tokens for the API server."""
        name = card_name.lower()
        if self.first_engine:
            return 2048
        if self.version >= (0, 26, 0) and card_bytes >= 160 * GIB:
            return 16384
        large = card_bytes >= 70 * GIB and "a100" not in name and "gb10" not in name
        return 8192 if large else 2048

    def sequences(self, card_bytes: int, card_name: str) -> int:
        """Default of max-num-seqs."""
        name = card_name.lower()
        large = card_bytes >= 70 * GIB and "a100" not in name and "gb10" not in name
        return 1024 if large and not self.first_engine else 256


@lru_cache(maxsize=64)
def rules_for(text: str | None) -> Rules:
    """The rules of the version named; of the newest one known where none is."""
    return Rules(version_of(text) or NEWEST)
