"""A model as the planner needs it: what a config.json says, with what transformers fills in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from engines.planner.caches import Kind
from engines.vllm.notes import Note


class StateKind(StrEnum):
    MAMBA1 = "mamba1"
    MAMBA2 = "mamba2"
    DELTA = "gated delta net"
    KDA = "kimi delta attention"
    LINEAR = "linear attention"
    CONV = "short convolution"


@dataclass(frozen=True)
class State:
    """Sizes of a layer's state; what a kind does not use is 0. ``dtype`` is the recurrent part's bytes."""

    kind: StateKind
    inner: int = 0
    groups: int = 0
    heads: int = 0
    head: int = 0
    key_heads: int = 0
    key_head: int = 0
    size: int = 0
    conv: int = 4
    dtype: int = 0
    rank: int = 0
    #: tokens after which a state is made; 2048 where the config.json names none
    chunk: int = 2048


@dataclass(frozen=True)
class Latent:
    """MLA: what the compressed vector and the heads before it measure."""

    kv_rank: int
    rope: int
    nope: int
    value: int
    q_rank: int = 0
    index_heads: int = 0
    index_head: int = 0

    @property
    def kept(self) -> int:
        """Values kept of one token."""
        return self.kv_rank + self.rope


@dataclass(frozen=True)
class Experts:
    """``layers`` are the positions of layers with experts; ``shared`` the width of the shared expert."""

    number: int
    active: int
    width: int
    layers: frozenset[int]
    shared: int = 0
    #: the shared expert has a gate of its own
    shared_gate: bool = False
    router_bias: bool = False
    biases: bool = False


@dataclass(frozen=True)
class Quant:
    """How the linear layers' weights are stored.

    ``bits`` per weight; ``group`` weights share a scale of ``scale_bytes`` (0: one per output channel,
    -1: one per tensor, -2: one per square block of 128); ``zeros`` are kept beside the scales.
    ``plain`` are names of modules left as they were.
    """

    method: str
    bits: float = 16
    group: int = 0
    scale_bytes: float = 2
    zeros: bool = False
    static_activations: bool = False
    #: bits of the activations while they are multiplied; 16 leaves them as they are
    activation_bits: int = 16
    plain: tuple[str, ...] = ()
    experts_only: bool = False
    #: bits of the key-value cache that the checkpoint itself asks for; 0 for none
    cache_bits: int = 0


@dataclass(frozen=True)
class Traits:
    """What a family of models has in a layer, as vLLM builds it."""

    family: str = "llama"
    gated: bool = True
    norms: int = 2
    #: layer norms with a bias
    norm_bias: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: str = ""  # "head", "full" or none
    tied: bool = False
    fused_norm_copies: bool = False
    learned_positions: bool = False
    sinks: bool = False
    gated_output: bool = False  # Qwen3-Next: the attention's query carries a gate of its own size
    lm_head_bias: bool = False


@dataclass(frozen=True)
class Layer:
    """One decoder layer: what it keeps, and with how many heads of which size."""

    kind: Kind
    heads: int = 0
    kv_heads: int = 0
    head: int = 0
    value: int = 0
    window: int = 0
    has_state: bool = False
    has_mlp: bool = True
    #: sizes of this layer's own feed-forward part where they differ; 0 takes the model's
    intermediate: int = 0
    #: keeps nothing because it reads the cache of an earlier layer
    shares: bool = False
    indexer: bool = False


@dataclass(frozen=True)
class Model:
    """``layers`` in order, one entry per decoder layer. Sizes in elements, ``dtype_bytes`` per element."""

    architecture: str
    model_type: str
    dtype: str
    dtype_bytes: int
    layers: tuple[Layer, ...]
    hidden: int
    heads: int
    kv_heads: int
    head: int
    vocab: int
    intermediate: int
    #: tokens that the model reads, 2048 where its config.json sets no limit
    longest: int
    rope_positions: int
    rope_size: int
    tied: bool
    traits: Traits = Traits()
    state: State | None = None
    latent: Latent | None = None
    experts: Experts | None = None
    quant: Quant | None = None
    #: parts beside the text decoder: parameters of towers and projectors, 0 where there are none
    tower_parameters: int = 0
    tower_known: bool = True
    multimodal: bool = False
    #: the config.json sets a limit to the length
    limited: bool = True
    encoder_tokens: int = 0
    #: layers of an encoder that vLLM runs too (Whisper)
    encoder_layers: int = 0
    generates: bool = True
    #: the family is one whose layers the planner knows one for one
    known: bool = True
    #: what each layer keeps is certain; otherwise a bound
    kinds_known: bool = True
    draft_layers: int = 0
    notes: tuple[Note, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def attention_layers(self) -> int:
        return sum(1 for one in self.layers if one.kind is not Kind.NONE)

    @property
    def has_state(self) -> bool:
        return any(one.has_state for one in self.layers)

    @property
    def hybrid(self) -> bool:
        """State layers beside attention layers."""
        return self.has_state and any(
            one.kind in (Kind.FULL, Kind.LATENT, Kind.SLIDING, Kind.CHUNKED) for one in self.layers
        )

    @property
    def is_moe(self) -> bool:
        return self.experts is not None
