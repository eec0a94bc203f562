"""Pages of a model under given flags: block sizes, layers on each card, groups, and the pool they make.

Source: vLLM's platforms/interface.py (_align_hybrid_block_size), distributed/utils.py (get_pp_indices) and
the get_kv_cache_spec of its attention layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm

from engines.planner.caches import (
    VALUE_BYTES,
    Kind,
    LayerCache,
    Load,
    ceil_div,
    head_bytes,
    index_bytes,
    latent_bytes,
    quantised,
)
from engines.planner.flags import Card, Settled
from engines.planner.groups import Layout, lay_out
from engines.planner.layers import state_bytes
from engines.planner.model import Layer, Model
from engines.planner.pool import Pool, make_pool
from engines.planner.rules import Rules
from engines.vllm.notes import Note, Unreadable, error, gettext_noop, info, warning

#: no page is larger; vLLM's own block sizes for state layers stay well below
_LARGEST_BLOCK = 1 << 20


@dataclass(frozen=True)
class Sizing:
    """The cache of a model before memory is known."""

    layout: Layout
    stages: tuple[Layout, ...]
    stage_layers: tuple[frozenset[int], ...]
    load: Load
    rules: Rules
    block: int
    cache_type: str
    notes: tuple[Note, ...] = ()

    def pool(self, memory: Sequence[int], override: int | None = None) -> Pool:
        """``memory``: bytes for the cache, per stage."""
        return make_pool(self.layout, self.stages, memory, self.rules, self.load, override=override)

    @property
    def token_bytes(self) -> float:
        """Bytes that one more token of a long request takes on the fullest card."""
        return max((_token_bytes(stage) for stage in self.stages), default=0.0)


def _token_bytes(stage: Layout) -> float:
    growing = [group for group in stage.groups if group.cache.kind in (Kind.FULL, Kind.LATENT, Kind.INDEX)]
    if stage.uneven:
        return stage.block_bytes / stage.groups[0].cache.block if growing else 0.0
    return sum(stage.block_bytes / group.cache.block for group in growing)


def size(model: Model, settled: Settled, card: Card, rules: Rules) -> Sizing:
    """Raises Unreadable where the flags and the model do not go together."""
    flags = settled.flags
    tensor, pipeline = flags.tensor_parallel_size, flags.pipeline_parallel_size
    notes: list[Note] = []
    _check_split(model, tensor, pipeline)
    cache_type = _cache_type(model, flags.kv_cache_dtype)
    block = flags.block_size or default_block(model, card, rules)
    positions: list[tuple[int, LayerCache]] = []
    state_page = 0
    if model.state and model.has_state:
        kept = VALUE_BYTES.get(flags.mamba_ssm_cache_dtype)
        state = replace(model.state, dtype=kept) if kept else model.state
        state_page = state_bytes(state, model.dtype_bytes, tensor, flags.speculative_tokens)
    if model.hybrid and state_page:
        chunk = model.state.chunk if model.state and settled.state_mode == "all" else 1
        aligned = _hybrid_block(model, cache_type, tensor, block, state_page, chunk)
        if aligned > block:
            notes.append(
                info(
                    "block_raised",
                    gettext_noop(
                        "vLLM raises the page to %(block)s tokens, so that it holds a layer's state."
                    ),
                    field="block_size",
                    block=aligned,
                )
            )
        block = max(block, aligned)
    whole_page = _attention_page(model, cache_type, tensor, block)
    state_block = block if settled.state_mode != "none" else settled.max_model_len
    for place, layer in enumerate(model.layers):
        cache = _cache(layer, model, cache_type, tensor, block)
        if cache is not None:
            positions.append((place, cache))
            if layer.indexer and model.latent:
                index = LayerCache(
                    Kind.INDEX, block, index_bytes(model.latent.index_head), head=model.latent.index_head
                )
                positions.append((place, index))
        if layer.has_state and state_page:
            padded = whole_page if model.hybrid else 0
            positions.append(
                (place, LayerCache(Kind.STATE, state_block, state_bytes=state_page, padded=padded))
            )
        if model.encoder_tokens and layer.kind is Kind.FULL:
            cross = _plain(layer, model, cache_type, tensor, block)
            positions.append((place, replace(cross, kind=Kind.CROSS)))
    for extra in range(flags.speculative_layers):
        plain = Layer(Kind.FULL, model.heads, model.kv_heads, model.head, model.head)
        last = next((one for one in reversed(model.layers) if one.kind is Kind.LATENT), plain)
        drafted = _cache(last, model, cache_type, tensor, block)
        if drafted is not None:
            positions.append((len(model.layers) + extra, drafted))
    if quantised(cache_type) and not card.fp8 and cache_type.startswith("fp8"):
        notes.append(
            warning(
                "fp8_card",
                gettext_noop("%(card)s has no 8-bit floating point: vLLM may refuse an fp8 cache there."),
                field="kv_cache_dtype",
                card=card.name,
            )
        )
    layout = lay_out(positions, rules, hybrid=not flags.disable_hybrid_kv_cache_manager)
    shares = stage_layers(len(model.layers), pipeline)
    if flags.speculative_layers:
        extra_layers = frozenset(range(len(model.layers), len(model.layers) + flags.speculative_layers))
        shares = (*shares[:-1], shares[-1] | extra_layers)
    load = Load(
        in_flight=settled.batched_tokens * rules.batches_in_flight,
        split=flags.decode_context_parallel_size * flags.prefill_context_parallel_size,
        encoder_tokens=model.encoder_tokens,
        state_mode=settled.state_mode,
        speculative=flags.speculative_tokens,
    )
    return Sizing(
        layout,
        tuple(layout.share(share) for share in shares),
        shares,
        load,
        rules,
        block,
        cache_type,
        tuple(notes),
    )


def _check_split(model: Model, tensor: int, pipeline: int) -> None:
    if model.heads and model.heads % tensor:
        raise Unreadable(
            error(
                "heads_split",
                gettext_noop("%(heads)s attention heads cannot be shared by %(cards)s cards."),
                remedy=gettext_noop("Choose a tensor parallel size that divides %(heads)s."),
                field="tensor_parallel_size",
                heads=model.heads,
                cards=tensor,
            )
        )
    if model.kv_heads and (model.kv_heads % tensor if model.kv_heads >= tensor else tensor % model.kv_heads):
        raise Unreadable(
            error(
                "kv_heads_split",
                gettext_noop("%(heads)s key-value heads cannot be shared by %(cards)s cards."),
                remedy=gettext_noop(
                    "Choose a tensor parallel size that divides %(heads)s, or a multiple of it."
                ),
                field="tensor_parallel_size",
                heads=model.kv_heads,
                cards=tensor,
            )
        )
    if pipeline > len(model.layers):
        raise Unreadable(
            error(
                "layers_split",
                gettext_noop("%(layers)s layers cannot be shared by %(stages)s pipeline stages."),
                field="pipeline_parallel_size",
                layers=len(model.layers),
                stages=pipeline,
            )
        )


def _cache_type(model: Model, asked: str) -> str:
    """A checkpoint that stores its cache in 8 bits turns auto into fp8."""
    if asked == "auto" and model.quant and model.quant.cache_bits == 8:
        return "fp8"
    return asked


def default_block(model: Model, card: Card, rules: Rules) -> int:
    """Tokens per page where no flag says so: 16, but for latent attention on backends that want more."""
    if card.is_processor:
        return 16 if model.latent else 128
    if model.latent is None or rules.first_engine:
        return 16
    if model.latent.index_head:
        return 64
    if "B200" in card.name.upper() or "B300" in card.name.upper():
        return 128 if rules.version < (0, 18, 0) else 64
    # FlashMLA wants 64; FlashAttention 3, first choice on Hopper since then, takes any multiple of 16
    return 16 if card.hopper and rules.version >= (0, 18, 0) else 64


def kv_heads_on_card(total: int, tensor: int) -> int:
    """Heads are shared, and copied where there are fewer than cards."""
    return max(1, total // tensor)


def _per_head(cache_type: str, model: Model, head: int, value: int) -> int:
    found = head_bytes(cache_type, model.dtype_bytes, head, value)
    if found is None:
        raise Unreadable(
            error(
                "cache_type",
                gettext_noop("The cache type “%(name)s” is not known here."),
                remedy=gettext_noop("Choose auto or fp8."),
                field="kv_cache_dtype",
                name=cache_type,
            )
        )
    return found


def _plain(layer: Layer, model: Model, cache_type: str, tensor: int, block: int) -> LayerCache:
    heads = kv_heads_on_card(layer.kv_heads, tensor)
    return LayerCache(
        layer.kind,
        block,
        heads * _per_head(cache_type, model, layer.head, layer.value),
        window=layer.window,
        heads=heads,
        head=layer.head,
        value=layer.value,
    )


def _cache(layer: Layer, model: Model, cache_type: str, tensor: int, block: int) -> LayerCache | None:
    if layer.kind is Kind.NONE:
        return None
    if layer.kind is Kind.LATENT and model.latent:
        # DeepSeek's sparse models keep their fp8 cache in a layout of their own
        layout = "fp8_ds_mla" if model.latent.index_head and cache_type.startswith("fp8") else cache_type
        kept = latent_bytes(layout, model.dtype_bytes, model.latent.kept)
        if kept is None:
            _per_head("unknown " + cache_type, model, 1, 1)
        return LayerCache(Kind.LATENT, block, kept or 0, heads=1, head=model.latent.kept)
    return _plain(layer, model, cache_type, tensor, block)


def _attention_page(model: Model, cache_type: str, tensor: int, block: int) -> int:
    """Bytes of an attention layer's page of ``block`` tokens; 0 for models without attention."""
    first = next((one for one in model.layers if one.kind is not Kind.NONE), None)
    cache = _cache(first, model, cache_type, tensor, block) if first else None
    return cache.page if cache else 0


def _hybrid_block(model: Model, cache_type: str, tensor: int, block: int, state_page: int, chunk: int) -> int:
    """The smallest page that holds a layer's state: multiples of the kernel's block, or of 16, and of the
    chunk in which states are made where every page ends with one."""
    token = _attention_page(model, cache_type, tensor, 1)
    if not token:
        return block
    step = lcm(max(16, block), chunk)
    return min(step * ceil_div(state_page, step * token), _LARGEST_BLOCK)


def stage_layers(count: int, stages: int) -> tuple[frozenset[int], ...]:
    """Which layers each pipeline stage runs: evenly, what is left over to the stages before the last."""
    shares = [count // stages] * stages
    for extra in range(count % stages):
        shares[-(extra + 2)] += 1
    first = 0
    out: list[frozenset[int]] = []
    for share in shares:
        out.append(frozenset(range(first, first + share)))
        first += share
    return tuple(out)
