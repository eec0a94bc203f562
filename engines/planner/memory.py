"""Memory of a start beside weights and cache: the profile run's peak, what lies outside PyTorch, graphs.

Sources: vLLM's v1/worker/gpu_worker.py (determine_available_memory), v1/worker/gpu/model_runner.py and
v1/worker/gpu_model_runner.py (profile_run, profile_cudagraph_memory), its fused experts' workspaces and the
dry run of latent attention. What no source tells is measured: vLLM 0.25.1 on an H200, some 70 starts of
models cut to a few layers (tests/data/h200/measured.jsonl).
"""

from __future__ import annotations

from dataclasses import dataclass

from engines.planner.caches import Kind
from engines.planner.flags import Card, Settled
from engines.planner.model import Model, StateKind
from engines.planner.rules import MIB, Rules
from engines.planner.sizing import kv_heads_on_card

#: MoE architectures that run on model runner 2 all the same (config/vllm.py)
_RUNNER_TWO_EXPERTS = frozenset({"DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM"})
#: measured: bytes that one start takes outside PyTorch on a Hopper card
OUTSIDE = 230 * MIB
#: measured on two H200s: NCCL and the custom all-reduce of tensor parallel
OUTSIDE_TENSOR = 324 * MIB
#: measured: what CUDA's context takes before vLLM looks at what is free
CONTEXT = 527 * MIB
#: tokens of the dry run with which latent attention reserves its prefill's workspace, at most
_LATENT_TOKENS = 65536


@dataclass(frozen=True)
class Peak:
    """Candidates for the profile run's peak, largest first: (what, bytes)."""

    candidates: tuple[tuple[str, int], ...]

    @property
    def bytes(self) -> int:
        return self.candidates[0][1]

    @property
    def what(self) -> str:
        return self.candidates[0][0]


def runner_two(model: Model, settled: Settled, rules: Rules) -> bool:
    """Whether vLLM takes its second model runner for this start."""
    if not rules.runner_two or not model.generates or model.has_state:
        return False
    return not model.is_moe or model.architecture in _RUNNER_TWO_EXPERTS


def activation(
    model: Model,
    settled: Settled,
    card: Card,
    rules: Rules,
    block: int,
    *,
    first: bool = True,
    last: bool = True,
) -> Peak:
    """The largest that PyTorch's memory grows by while vLLM runs its widest batch once."""
    run = _Run(model, settled, card, rules, block, first, last)
    found = [("forward", run.forward())]
    if first and settled.graphs:
        found.append(("embedding", run.embedding()))
    if last:
        found.append(("sampler", run.sampler()))
    return Peak(tuple(sorted(found, key=lambda one: -one[1])))


class _Run:
    """One profile run. Sizes in bytes for one token unless said otherwise."""

    def __init__(
        self, model: Model, settled: Settled, card: Card, rules: Rules, block: int, first: bool, last: bool
    ):
        self.model, self.settled, self.card, self.rules = model, settled, card, rules
        self.block, self.first, self.last = block, first, last
        self.tokens = settled.batched_tokens
        self.requests = min(settled.sequences, settled.batched_tokens)
        self.width = model.dtype_bytes
        self.hidden = model.hidden * self.width
        self.tensor = settled.flags.tensor_parallel_size
        self.second = runner_two(model, settled, rules)

    @property
    def cublas(self) -> int:
        """cuBLAS's workspace, taken when plain weights are multiplied."""
        quant = self.model.quant
        if quant is not None and not quant.experts_only:
            return 0
        return 32 * MIB if self.card.hopper or "B200" in self.card.name.upper() else 8 * MIB

    @property
    def cache(self) -> int:
        """The card's second-level cache, which Triton's tuning flushes by a buffer of that size."""
        name = self.card.name.upper()
        return (60 if "H200" in name or "H20" in name else 50 if "H100" in name else 40) * MIB

    def forward(self) -> int:
        """The widest moment in the layers."""
        token = max(self._dense(), self._experts())
        fixed = self.cublas + 2048
        quant = self.model.quant
        if self.settled.graphs and not self.model.is_moe and self.second:
            fixed += self.cache
            if quant and quant.activation_bits == 8 and quant.group in (-1, 0):
                token += self.model.hidden
        return self.tokens * token + fixed + self._latent_workspace()

    def _kept(self) -> int:
        """Vectors of the hidden size that live while the feed-forward part runs."""
        model = self.model
        if self.settled.graphs:
            return 2 if model.is_moe else 3
        if model.is_moe:
            return 3
        if model.traits.fused_norm_copies:
            return 5
        kept = 3
        if model.model_type.startswith(("qwen2", "qwen3")):
            kept = 5 if self.tensor > 1 else 4
        return max(kept - (2 if self.settled.flags.pipeline_parallel_size > 1 else 0), 2)

    def _dense(self) -> int:
        model = self.model
        if model.is_moe and model.experts and len(model.experts.layers) == len(model.layers):
            return 0
        inner = model.intermediate * self.width // self.tensor
        found = inner * (3 if model.traits.gated else 2) + self._kept() * self.hidden
        quant = model.quant
        if quant and quant.activation_bits == 8 and quant.group == -2:
            # the activation in 8 bits with a scale for each 128, beside the wide one
            found += model.intermediate // self.tensor * (128 + 4) // 128
        if model.traits.family == "mamba" and model.state:
            found = max(found, 6 * model.state.inner * self.width // self.tensor + 3 * self.hidden)
        return found

    def _experts(self) -> int:
        model, experts = self.model, self.model.experts
        if experts is None:
            return 0
        if model.traits.family == "gpt-oss":
            # the Triton kernels of mxfp4 scatter into one buffer per chosen expert
            token = 2 * experts.active * self.hidden + 4 * self.hidden
        else:
            token = self._expert_workspace() + 3 * self.hidden + self._left_over()
        if not self.settled.graphs:
            return token
        # compiled, a plain model holds one vector more; the others lose what the compiler saves
        if model.latent:
            return token - self.hidden - model.latent.kept * self.width
        return token - 2 * self.hidden if model.has_state else token + self.hidden

    def _expert_workspace(self) -> int:
        """Both workspaces of the fused experts for one token."""
        experts = self.model.experts
        if experts is None or self.model.traits.family == "gpt-oss":
            return 0
        ranks = 1 if self.settled.flags.enable_expert_parallel else self.tensor
        inner, hidden = experts.width // ranks, self.model.hidden
        return experts.active * (max(inner, hidden) + max(2 * inner, hidden)) * self.width

    def _left_over(self) -> int:
        """What attention made and still holds when the experts run."""
        model, tensor = self.model, self.tensor
        if model.latent:
            latent = model.latent
            heads = model.heads // tensor
            kept = heads * (latent.nope + latent.rope) + latent.kept + latent.kv_rank + latent.rope
            if latent.q_rank:
                kept += 2 * latent.q_rank + model.hidden
            return kept * self.width
        state = model.state
        if model.has_state and state and state.kind is StateKind.DELTA:
            keys, values = state.key_heads * state.key_head, state.heads * state.head
            return (3 * (2 * keys + values) + 4 * values) * self.width // tensor + 3 * self.hidden
        heads, kv_heads = model.heads // tensor, kv_heads_on_card(model.kv_heads, tensor)
        query, keys = heads * model.head, kv_heads * model.head
        norms = query + keys if model.traits.qk_norm else 0
        return (query + 2 * keys + norms + query) * self.width

    def _latent_workspace(self) -> int:
        """Latent attention's dry run of its chunked prefill, in bytes for the whole run."""
        latent = self.model.latent
        if latent is None or not any(one.kind is Kind.LATENT for one in self.model.layers):
            return 0
        sequences = self.settled.sequences
        tokens = min(max(8 * self.settled.max_model_len, 4 * sequences * self.block), _LATENT_TOKENS)
        tokens = max(tokens, sequences * self.block)
        return tokens * (self.model.heads // self.tensor) * (latent.nope + latent.value) * self.width

    def embedding(self) -> int:
        """While the embedding is compiled its table exists twice, with two hidden vectors per token."""
        rows = -(-self.model.vocab // 64) * 64 // self.tensor
        total = _block(rows * self.hidden) + self.tokens * 2 * self.hidden + 43008
        quant = self.model.quant
        if quant and quant.activation_bits == 8 and quant.group in (-1, 0):
            total += self.tokens * self.model.hidden
        return total

    def sampler(self) -> int:
        """Logits of the most requests at once, with what sampling makes of them."""
        logits = self.requests * self.model.vocab
        held = self.tokens * self.hidden
        if self.second:
            # 16-bit logits and their 32-bit copy
            return logits * 6 + held + self.requests * (self.hidden + 2500) + self.cublas
        held += self.tokens * self._expert_workspace()
        # those, the probabilities, and the noise they are drawn with
        return logits * 14 + held + self.requests * 10270 + 113 * 10**6


def _block(size: int) -> int:
    """Bytes of the caching allocator's block for one large tensor."""
    segment = -(-size // (2 * MIB)) * 2 * MIB
    return segment if segment - size <= MIB else size


def outside(model: Model, settled: Settled, rules: Rules) -> int:
    """Bytes taken outside PyTorch: CUDA's modules, cuBLAS, NCCL."""
    total = OUTSIDE
    if settled.flags.tensor_parallel_size > 1:
        total += OUTSIDE_TENSOR
    if settled.graphs and not runner_two(model, settled, rules):
        total += len(model.layers) * MIB // 3
    return total


def graph_sizes(settled: Settled) -> tuple[int, int, int]:
    """Captured batch sizes: how many in pieces, how many whole, and the largest.

    vLLM's 1, 2, 4, then every 8 up to 256 and every 16 above, to twice max-num-seqs, at most 512.
    """
    largest = max(min(settled.sequences * 2, 512, settled.batched_tokens), 1)
    sizes = [one for one in (1, 2, 4, *range(8, 256, 8), *range(256, 1025, 16)) if one <= largest]
    return len(sizes), sum(1 for one in sizes if one <= settled.sequences), largest


def graphs(model: Model, settled: Settled, rules: Rules) -> int:
    """What vLLM takes off the cache's memory for CUDA graphs; measured, and only runner 1 does it."""
    if not (rules.graphs_counted and settled.graphs) or runner_two(model, settled, rules):
        return 0
    pieces, whole, largest = graph_sizes(settled)
    if model.traits.family == "gpt-oss":
        pieces, largest = 83, 1024
    per_piece = 1.2 + 2.9 * largest / 1024
    per_whole = max(1.0, 0.2 * len(model.layers))
    states = 5.5 * sum(1 for one in model.layers if one.has_state)
    return int((55 + pieces * per_piece + whole * per_whole + states) * MIB)
