"""Bytes of a model's weights on one card, tensor by tensor, from its config alone.

Source: the modules in vLLM's model_executor/models as they are built (fused QKV and gate-up projections,
vocabulary padded to 64, rotary tables and cache scales kept beside the weights), its
layers/quantization/*.py, and PyTorch's CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp) for how
each allocation is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from engines.planner import families
from engines.planner.caches import Kind, ceil_div
from engines.planner.flags import Card, Flags
from engines.planner.model import Layer, Model, Quant, StateKind
from engines.planner.rules import MIB, Rules

#: blocks above this are not split while weights load (gpu_worker.py, _scoped_allocator_max_split)
_UNSPLIT = 20 * MIB


def allocated(size: int) -> int:
    """Bytes that one tensor takes: up to 512, and to 2 MiB where a block is not split."""
    if size <= 0:
        return 0
    rounded = ceil_div(size, 512) * 512
    if rounded < 10 * MIB:
        return rounded
    segment = ceil_div(rounded, 2 * MIB) * 2 * MIB
    rest = segment - rounded
    return rounded if rest > MIB and rounded < _UNSPLIT else segment


@dataclass
class Shape:
    """A sum of tensors by what they are for: {"attention": bytes, ...}."""

    parts: dict[str, int] = field(default_factory=dict)
    #: large blocks that were freed again and wait for a tensor that fits
    free: list[int] = field(default_factory=list)

    def add(self, part: str, *sizes: float) -> None:
        self.parts[part] = self.parts.get(part, 0) + sum(self._take(int(one)) for one in sizes)

    def _take(self, size: int) -> int:
        """A large tensor takes a free block whole, where the block is less than 20 MiB too large."""
        if size >= _UNSPLIT:
            for block in sorted(self.free):
                if size <= block < size + _UNSPLIT:
                    self.free.remove(block)
                    return block
        return allocated(size)

    def release(self, *sizes: int) -> None:
        """Blocks that building the model freed."""
        self.free.extend(allocated(one) for one in sizes if one >= _UNSPLIT)

    def raw(self, part: str, size: float) -> None:
        """A part whose tensors are not known one by one."""
        self.parts[part] = self.parts.get(part, 0) + int(size)

    @property
    def total(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Weights:
    """Of one card. ``low`` and ``high`` bound the sum; they equal it where every tensor is known."""

    parts: dict[str, int]
    total: int
    low: int
    high: int
    exact: bool
    #: what was read off the weight files instead, 0 where it was not
    files: int = 0


class Builder:
    """Adds up the tensors of one card."""

    def __init__(self, model: Model, flags: Flags, card: Card):
        self.model = model
        self.tensor = flags.tensor_parallel_size
        self.expert_parallel = flags.enable_expert_parallel
        self.data = flags.data_parallel_size
        self.flags = flags
        self.card = card
        self.bytes = model.dtype_bytes
        self.shape = Shape()
        self.turned: set[int] = set()

    # one linear layer -----------------------------------------------------------------------------------
    def linear(
        self,
        part: str,
        out: int,
        into: int,
        *,
        bias: bool = False,
        module: str = "",
        quant: Quant | bool | None = True,
        copies: int = 1,
    ) -> None:
        """``out`` x ``into`` weights; ``module`` is the name that a checkpoint may leave unquantised."""
        if quant is True:
            quant = self._quant_of(module)
        for size in weight_sizes(out, into, self.bytes, quant or None):
            self.shape.add(part, size * copies)
        if bias:
            self.shape.add(part, out * self.bytes * copies)

    def _quant_of(self, module: str) -> Quant | None:
        quant = self.model.quant
        if quant is None or quant.experts_only:
            return None
        leaf = module.rsplit(".", 1)[-1]
        for name in quant.plain:
            if name.startswith("re:"):
                name = name[3:].strip(".*")
            tail = name.rsplit(".", 1)[-1]
            if tail and (tail == leaf or (leaf and leaf in name and "layers.0" in name)):
                return None
        return quant

    def norm(self, size: int, count: int = 1) -> None:
        for _ in range(count):
            self.shape.add("norms", size * self.bytes)
            if self.model.traits.norm_bias:
                self.shape.add("norms", size * self.bytes)

    # parts of a layer -------------------------------------------------------------------------------------
    def attention(self, layer: Layer) -> None:
        model, traits = self.model, self.model.traits
        if model.latent and layer.kind is Kind.LATENT:
            self.latent(layer)
        else:
            heads = layer.heads // self.tensor
            kv_heads = max(1, layer.kv_heads // self.tensor)
            query = heads * layer.head * (2 if traits.gated_output else 1)
            bias = traits.qkv_bias or bool(model.raw.get("attention_bias") or model.raw.get("qkv_bias"))
            out_bias = traits.out_bias or bool(
                traits.family == "llama" and model.raw.get("attention_bias") and model.model_type == "llama"
            )
            self.linear(
                "attention",
                query + (0 if layer.shares else kv_heads * (layer.head + layer.value)),
                model.hidden,
                bias=bias,
                module="self_attn.q_proj",
            )
            self.linear(
                "attention", model.hidden, heads * layer.value, bias=out_bias, module="self_attn.o_proj"
            )
            if traits.qk_norm == "head" or model.raw.get("use_qk_norm") is True:
                self.norm(layer.head, 2)
            elif traits.qk_norm == "full":
                self.norm(heads * layer.head)
                self.norm(kv_heads * layer.head)
            self.rotary(layer)
            if traits.sinks:
                self.shape.add("attention", heads * self.bytes)
        # scales of query, key, value and probabilities, one number each
        self.shape.add("buffers", 4, 4, 4, 4)

    def latent(self, layer: Layer) -> None:
        model, latent = self.model, self.model.latent
        if latent is None:
            return
        heads = layer.heads // self.tensor
        query = heads * (latent.nope + latent.rope)
        if latent.q_rank:
            self.linear(
                "attention",
                latent.q_rank + latent.kept,
                model.hidden,
                module="self_attn.q_a_proj",
            )
            self.norm(latent.q_rank)
            self.linear("attention", query, latent.q_rank, module="self_attn.q_b_proj")
        else:
            self.linear("attention", latent.kept, model.hidden, module="self_attn.kv_a_proj_with_mqa")
            self.linear("attention", query, model.hidden, module="self_attn.q_proj")
        self.norm(latent.kv_rank)
        self.linear(
            "attention", heads * (latent.nope + latent.value), latent.kv_rank, module="self_attn.kv_b_proj"
        )
        self.linear("attention", model.hidden, heads * latent.value, module="self_attn.o_proj")
        if model.quant and self._quant_of("self_attn.kv_b_proj"):
            # the up-projections folded into query and output are views of kv_b_proj, or copies in 16 bits
            self.shape.add(
                "attention",
                heads * latent.nope * latent.kv_rank * self.bytes,
                heads * latent.value * latent.kv_rank * self.bytes,
            )
        self.rotary(layer)
        if layer.indexer:
            width = latent.index_heads * latent.index_head
            self.linear("attention", width, latent.q_rank or model.hidden, module="indexer.wq_b")
            self.linear("attention", latent.index_head, model.hidden, module="indexer.wk")
            self.linear("attention", latent.index_heads, model.hidden, quant=None)
            self.norm(latent.index_head, 2)

    def state(self) -> None:
        """The weights of a layer without attention."""
        model, state = self.model, self.model.state
        if state is None:
            return
        tensor, hidden = self.tensor, model.hidden
        if state.kind is StateKind.DELTA:
            keys = state.key_heads * state.key_head // tensor
            values = state.heads * state.head // tensor
            heads = state.heads // tensor
            conv = 2 * keys + values
            self.linear("state layers", conv + values, hidden, module="linear_attn.in_proj_qkvz")
            self.linear("state layers", 2 * heads, hidden, module="linear_attn.in_proj_ba")
            self.shape.add("state layers", conv * state.conv * self.bytes, heads * 4, heads * 4)
            self.shape.add("state layers", state.head * self.bytes)
            self.linear("state layers", hidden, values, module="linear_attn.out_proj")
        elif state.kind is StateKind.MAMBA2:
            groups = (state.groups if state.groups % tensor == 0 else tensor) // tensor
            inner, heads = state.inner // tensor, max(state.heads // tensor, 1)
            conv = inner + 2 * groups * state.size
            self.linear("state layers", inner + conv + heads, hidden, module="mixer.in_proj")
            self.shape.add("state layers", conv * state.conv * self.bytes, conv * self.bytes)
            self.shape.add("state layers", heads * 4, heads * 4, heads * 4, inner * self.bytes)
            self.linear("state layers", hidden, inner, module="mixer.out_proj")
        elif state.kind is StateKind.MAMBA1:
            inner = state.inner // tensor
            self.linear("state layers", 2 * inner, hidden, module="mixer.in_proj")
            self.shape.add("state layers", inner * state.conv * self.bytes, inner * self.bytes)
            self.linear("state layers", state.rank + 2 * state.size, inner, module="mixer.x_proj")
            self.linear("state layers", inner, state.rank, bias=True, module="mixer.dt_proj")
            self.shape.add("state layers", inner * state.size * 4, inner * 4)
            self.linear("state layers", hidden, inner, module="mixer.out_proj")
        elif state.kind is StateKind.CONV:
            inner = state.inner // tensor
            self.linear("state layers", 3 * inner, hidden, module="conv.in_proj")
            self.shape.add("state layers", inner * state.conv * self.bytes)
            self.linear("state layers", hidden, inner, module="conv.out_proj")
        else:
            inner = state.heads * state.head // tensor
            for _ in range(3):
                self.linear("state layers", inner, hidden, module="q_proj")
            for _ in range(2):
                self.linear("state layers", state.head, hidden, module="f_a_proj")
                self.linear("state layers", inner, state.head, module="f_b_proj")
            self.shape.add("state layers", *([inner * state.conv * 4] * 3))
            self.linear("state layers", hidden, inner, module="o_proj")

    def mlp(self, width: int, part: str = "feed-forward") -> None:
        model, traits = self.model, self.model.traits
        inner = width // self.tensor
        bias = traits.mlp_bias or bool(model.raw.get("mlp_bias"))
        self.linear(
            part,
            (2 if traits.gated else 1) * inner,
            model.hidden,
            bias=bias,
            module="mlp.gate_proj",
        )
        self.linear(part, model.hidden, inner, bias=bias, module="mlp.down_proj")

    def experts(self) -> None:
        model, experts = self.model, self.model.experts
        if experts is None:
            return
        number, width = experts.number, experts.width
        if self.expert_parallel:
            number = ceil_div(number, self.tensor * self.data)
        else:
            width = ceil_div(width, self.tensor)
        quant = model.quant
        if quant and not quant.experts_only and self._quant_of("mlp.experts") is None:
            quant = None
        gated = 2 if model.traits.family != "nemotron-h" else 1
        into = model.hidden
        for out, inner in ((gated * width, into), (into, width)):
            sizes = list(weight_sizes(out, inner, self.bytes, quant))
            if quant and quant.method == "mxfp4" and len(sizes) > 1:
                # the kernels lay the scales out for whole tiles of 256 outputs
                sizes[1] = ceil_div(out, 256) * 256 * ceil_div(inner, quant.group)
            for size in sizes:
                self.shape.add("experts", size * number)
        if experts.biases:
            self.shape.add("experts", gated * width * number * 4, into * number * 4)
        self.linear("experts", experts.number, model.hidden, bias=experts.router_bias, quant=None)
        if model.raw.get("topk_method") == "noaux_tc" or model.raw.get("scoring_func") == "sigmoid":
            self.shape.add("experts", experts.number * 4)
        if experts.shared:
            self.mlp(experts.shared, "shared experts")
            if experts.shared_gate:
                self.linear("shared experts", 1, model.hidden, quant=None)

    @property
    def _rows(self) -> int:
        """Rows of the vocabulary on one card."""
        return ceil_div(ceil_div(self.model.vocab, 64) * 64, self.tensor)

    def embeddings(self, here: bool) -> None:
        model = self.model
        if here:
            self.shape.add("embeddings", self._rows * model.hidden * self.bytes)
            if model.traits.learned_positions:
                self.shape.add("embeddings", model.longest * model.hidden * self.bytes)

    def head(self) -> None:
        if not self.model.tied:
            self.shape.add("output head", self._rows * self.model.hidden * self.bytes)
        if self.model.traits.lm_head_bias:
            self.shape.add("output head", self._rows * self.bytes)

    def rotary(self, layer: Layer) -> None:
        """Tables of angles, one for each way the model turns them; shared by the layers that turn alike."""
        model = self.model
        if model.traits.learned_positions or not model.rope_size:
            return
        positions = model.rope_positions
        if layer.kind is Kind.SLIDING and model.raw.get("rope_local_base_freq") is not None:
            positions = model.longest
        if positions in self.turned:
            return
        self.turned.add(positions)
        # made in 32 bits: angles, cosines, sines (half as wide each) and both together, then cut to 16
        half = positions * model.rope_size // 2 * 4
        self.shape.release(half, half, half, 2 * half)
        self.shape.add("buffers", positions * model.rope_size * self.bytes)


def weight_sizes(out: int, into: int, plain: int, quant: Quant | None) -> Iterator[int]:
    """Bytes of each tensor of a linear layer of ``out`` x ``into``."""
    if quant is None or quant.bits >= 16:
        yield out * into * plain
        return
    if quant.method == "bitsandbytes" and quant.bits == 4:
        yield ceil_div(out * into, 2)
        yield ceil_div(out * into, quant.group) * 4
        return
    yield int(out * into * quant.bits / 8)
    if quant.group == -1:
        yield 4
    elif quant.group == -2:
        yield ceil_div(out, 128) * ceil_div(into, 128) * 4
    elif quant.group == 0:
        yield int(out * quant.scale_bytes)
    else:
        yield int(out * ceil_div(into, quant.group) * quant.scale_bytes)
        if quant.zeros:
            yield int(out * ceil_div(into, quant.group) * quant.bits / 8)
    if quant.static_activations:
        yield 4


def weights_on_card(
    model: Model, flags: Flags, card: Card, rules: Rules, layers: frozenset[int], *, first: bool, last: bool
) -> Weights:
    """Weights of a pipeline stage that runs ``layers`` on one card."""
    built = Builder(model, flags, card)
    built.embeddings(first or (last and model.tied))
    for place in sorted(layers):
        if place < len(model.layers):
            _add_layer(built, model.layers[place], place)
    if last:
        built.norm(model.hidden)
        built.head()
    tower = 0
    if model.multimodal and first and not flags.language_model_only:
        tower = model.tower_parameters * model.dtype_bytes
        built.shape.raw("towers", tower)
    if flags.draft_bytes and last:
        built.shape.raw("draft model", flags.draft_bytes // flags.tensor_parallel_size)
    if flags.max_loras:
        built.shape.raw("adapters", _adapters(model, flags, layers))
    offload = int(flags.cpu_offload_gb * 2**30)
    total = built.shape.total
    if offload:
        moved = min(offload, total)
        built.shape.parts["kept in the host's memory"] = -moved
        total -= moved
    sure = model.known and model.kinds_known and model.traits.family not in families.ROUGH_WEIGHTS
    # what is not built tensor by tensor is trusted to a tenth, an architecture nobody knows to a third
    slack = 0.0 if sure else (0.1 if model.known else 0.35)
    uncertain = 0 if model.tower_known else tower // 2
    return Weights(
        parts={name: size for name, size in built.shape.parts.items() if size},
        total=total,
        low=int(total * (1 - slack)) - uncertain,
        high=int(total * (1 + slack)) + uncertain,
        exact=sure and not uncertain,
    )


def _add_layer(built: Builder, layer: Layer, place: int) -> None:
    model, traits = built.model, built.model.traits
    nemotron = traits.family == "nemotron-h"
    if layer.kind is not Kind.NONE or layer.shares or traits.family == "bert":
        built.attention(layer)
    if layer.has_state:
        built.state()
    empty = layer.kind is Kind.NONE and not layer.has_state and not layer.shares
    if traits.family != "mamba" and not (nemotron and not empty):
        experts = model.experts
        if experts and place in experts.layers:
            built.experts()
        else:
            width = model.intermediate
            if model.model_type == "llama4_text":
                width = int(model.raw.get("intermediate_size_mlp") or width)
            if model.model_type == "qwen2_moe" or model.is_moe:
                width = int(model.raw.get("intermediate_size") or width)
            built.mlp(width)
    built.norm(model.hidden, traits.norms)


def _adapters(model: Model, flags: Flags, layers: frozenset[int]) -> int:
    """Slots for LoRA adapters: two matrices of the rank beside every linear layer."""
    slots, rank, tensor = flags.max_loras, flags.max_lora_rank, flags.tensor_parallel_size
    hidden, inner = model.hidden, model.intermediate
    query, keys = model.heads * model.head, model.kv_heads * model.head
    per_layer = 3 * hidden + (query + 2 * keys) // tensor  # q, k, v
    per_layer += query // tensor + hidden  # o
    per_layer += 2 * hidden + 2 * inner // tensor + inner // tensor + hidden  # gate, up, down
    return slots * rank * per_layer * len(layers) * model.dtype_bytes
