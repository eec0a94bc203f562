"""What one layer keeps of a request: bytes of a page, and pages of a request of a given length.

Source: vLLM's v1/kv_cache_interface.py (page_size_bytes, max_memory_usage_bytes of each spec).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Kind(StrEnum):
    """Attention as the cache sees it."""

    FULL = "full"
    LATENT = "latent"  # MLA: one compressed vector per token
    INDEX = "index"  # the sparse attention's indexer beside a latent layer
    SLIDING = "sliding"
    CHUNKED = "chunked"
    STATE = "state"  # Mamba, gated delta net, linear attention, short convolution
    CROSS = "cross"
    NONE = "none"  # encoder-only layers, and layers that read another layer's cache


#: kinds that keep every token of a request
WHOLE = frozenset({Kind.FULL, Kind.LATENT, Kind.INDEX})


def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


@dataclass(frozen=True)
class Load:
    """What the pages of one request depend on besides its length.

    ``in_flight`` is max-num-batched-tokens times the batches in flight; ``split`` the cards among which
    one sequence is spread (decode x prefill context parallel).
    """

    in_flight: int
    split: int = 1
    encoder_tokens: int = 0
    state_mode: str = "none"
    speculative: int = 0


@dataclass(frozen=True)
class LayerCache:
    """One layer's cache. ``token_bytes`` x ``block`` is a page, but for a state, which has no tokens."""

    kind: Kind
    block: int
    token_bytes: int = 0
    window: int = 0
    state_bytes: int = 0
    padded: int = 0
    #: what the layer keeps per token in words for the arithmetic: heads, head size, value size, bytes
    heads: int = 0
    head: int = 0
    value: int = 0

    @property
    def page(self) -> int:
        """Bytes of one page of this layer."""
        real = self.state_bytes if self.kind is Kind.STATE else self.block * self.token_bytes
        return max(self.padded, real)

    def pages(self, length: int, load: Load) -> int:
        """Pages that one request of ``length`` tokens can hold at once."""
        if self.kind in WHOLE:
            return ceil_div(ceil_div(length, load.split), self.block)
        if self.kind is Kind.SLIDING:
            return ceil_div(min(self.window - 1 + load.in_flight, length), self.block) + 1
        if self.kind is Kind.CHUNKED:
            return ceil_div(min(self.window + load.in_flight, length), self.block)
        if self.kind is Kind.STATE:
            if load.state_mode == "all":
                return ceil_div(length, self.block) + load.speculative
            return (2 if load.state_mode == "align" else 1) + load.speculative
        if self.kind is Kind.CROSS:
            return ceil_div(load.encoder_tokens, self.block)
        return 0

    def with_block(self, block: int) -> LayerCache:
        return replace(self, block=block)

    def with_page(self, page: int) -> LayerCache:
        return replace(self, padded=page)

    def as_full(self) -> LayerCache:
        """The same layer keeping every token, as without the hybrid cache manager."""
        return replace(self, kind=Kind.FULL, window=0) if self.kind in (Kind.SLIDING, Kind.CHUNKED) else self


# Cache types -------------------------------------------------------------------------------------------

#: bytes of one value; those with scales or packing are in token_bytes()
VALUE_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}
FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla")
#: bytes of the key and of the value of one token and head of 128, by TurboQuant's packing
_TURBO_KEY = {"k8v4": None, "4bit_nc": 4, "k3v4_nc": 3, "3bit_nc": 3}
_TURBO_VALUE = {"k8v4": 4, "4bit_nc": 4, "k3v4_nc": 4, "3bit_nc": 3}


def quantised(cache_type: str) -> bool:
    return cache_type not in VALUE_BYTES and cache_type != "auto"


def _turbo_slot(head: int, packing: str) -> int:
    key_bits, value_bits = _TURBO_KEY[packing], _TURBO_VALUE[packing]
    key = head if key_bits is None else ceil_div(head * key_bits, 8) + 2
    value = ceil_div(head * value_bits, 8) + 4
    return key + value + (key + value) % 2


def head_bytes(cache_type: str, model_bytes: int, head: int, value: int) -> int | None:
    """Bytes that one key-value head keeps of one token; None for a cache type that is not known."""
    if cache_type == "auto":
        return (head + value) * model_bytes
    if cache_type in VALUE_BYTES:
        return (head + value) * VALUE_BYTES[cache_type]
    if cache_type in ("fp8_per_token_head", "int8_per_token_head"):
        return head + value + 2 * 4
    if cache_type == "int4_per_token_head":
        return head // 2 + value // 2 + 2 * 4
    if cache_type == "nvfp4":
        return head // 2 + head // 16 + value // 2 + value // 16
    if cache_type.startswith("turboquant_"):
        packing = cache_type.removeprefix("turboquant_")
        return _turbo_slot(head, packing) if packing in _TURBO_KEY else None
    if cache_type.startswith("fp8"):
        return head + value
    return None


def latent_bytes(cache_type: str, model_bytes: int, latent: int) -> int | None:
    """Bytes that a latent layer keeps of one token; None for a cache type that is not known."""
    if cache_type == "fp8_ds_mla":
        return 656
    if cache_type == "nvfp4_ds_mla":
        return 352
    if cache_type == "auto":
        return latent * model_bytes
    if cache_type in VALUE_BYTES:
        return latent * VALUE_BYTES[cache_type]
    if cache_type.startswith("fp8"):
        return latent
    if cache_type == "int4_per_token_head":
        return latent // 2 + 2 * 4
    return None


def index_bytes(head: int) -> int:
    """Bytes that a sparse indexer keeps of one token: fp8 values and a scale for each 128 of them."""
    return head + ceil_div(head, 128) * 4
