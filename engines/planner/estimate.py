"""The whole reckoning of a start: memory's terms, the pool they leave, whether vLLM starts, and why.

Every term carries its arithmetic as sentences. What earlier starts on the same host logged corrects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median

from engines.planner.flags import Card, Flags, Settled, settle
from engines.planner.memory import CONTEXT, activation, graphs, outside
from engines.planner.model import Model
from engines.planner.pool import Pool
from engines.planner.rules import GIB, MIB, Rules, rules_for
from engines.planner.sizing import Sizing, size
from engines.planner.weights import Weights, weights_on_card
from engines.vllm.notes import Note, Severity, error, gettext_noop, info, warning


@dataclass(frozen=True)
class Past:
    """One earlier start on the same host: what it was, and the memory that vLLM logged for its cache."""

    model: Model
    flags: Flags
    card: Card
    version: str
    available: int
    files: int = 0


@dataclass(frozen=True)
class Term:
    """One term of the memory on the fullest card. ``why`` are sentences, the arithmetic behind it."""

    key: str
    label: str
    bytes: int
    why: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """What is expected of a start. Bytes are of the card that decides; ``problem`` says why it is refused."""

    model: Model
    settled: Settled
    rules: Rules
    card: Card
    sizing: Sizing
    weights: Weights
    terms: tuple[Term, ...]
    requested: int
    available: int
    low: int
    high: int
    pool: Pool
    longest: int
    problem: Note | None
    notes: tuple[Note, ...]
    corrected_by: int = 0

    @property
    def starts(self) -> bool:
        return self.problem is None

    @property
    def length(self) -> int:
        """The max-model-len that vLLM would run with."""
        if self.settled.flags.length_auto:
            return max(min(self.longest, self.settled.max_model_len), 1)
        return self.settled.max_model_len

    @property
    def tokens(self) -> int:
        """Tokens of one replica's pool, as vLLM logs it."""
        return self.pool.tokens(self.length)

    @property
    def concurrency(self) -> float:
        """Requests of the longest kind at once, as vLLM logs it."""
        return self.pool.concurrency(self.length)

    @property
    def replicas(self) -> int:
        return self.settled.flags.data_parallel_size

    def curve(self, points: int = 24) -> list[tuple[int, float]]:
        """Requests at once over their length, from 1,024 tokens to the limit; capped by max-num-seqs."""
        if not self.starts:
            return []
        first = min(1024, self.length)
        lengths = {round(first * (self.length / first) ** (step / points)) for step in range(points + 1)}
        return [
            (one, min(self.pool.concurrency(one), float(self.settled.sequences)) * self.replicas)
            for one in sorted(lengths)
        ]

    def sequences_for(self, mean_length: int) -> int:
        """The max-num-seqs that requests of that mean length fill."""
        pages = self.pool.request_blocks(max(mean_length, 1))
        return max(self.pool.usable_blocks // pages, 1) if pages else self.settled.sequences


def estimate(
    model: Model,
    flags: Flags,
    card: Card,
    version: str | None = None,
    *,
    files: int = 0,
    past: Sequence[Past] = (),
    available: int | None = None,
) -> Estimate:
    """What vLLM would make of it. Raises Unreadable where model and flags do not go together.

    ``files`` are the bytes of the weight files, where known; ``available`` replaces the memory reckoned.
    """
    rules = rules_for(version)
    settled = settle(flags, model, card, rules)
    sizing = size(model, settled, card, rules)
    requested = ceil(card.total_bytes * settled.utilization)
    stages: list[tuple[int, Weights, list[Term], int]] = []
    count = len(sizing.stage_layers)
    for number, layers in enumerate(sizing.stage_layers):
        first, last = number == 0, number == count - 1
        weights = weights_on_card(model, flags, card, rules, layers, first=first, last=last)
        weights = _by_files(weights, files, flags, model)
        terms = _terms(model, settled, card, rules, sizing, weights, first=first, last=last)
        left = requested - sum(term.bytes for term in terms)
        stages.append((left, weights, terms, weights.high - weights.low))
    corrected, correction = 0, 0
    if flags.kv_cache_memory_bytes and rules.cache_bytes_flag:
        memory = [flags.kv_cache_memory_bytes] * count
        terms = []
    elif available is not None:
        memory = [available] * count
    else:
        corrected, correction = _correction(model, flags, card, rules, past)
        memory = [left + correction for left, *_ in stages]
    lowest = min(range(count), key=lambda one: memory[one] / max(sizing.stages[one].block_bytes, 1))
    left, weights, terms, spread = stages[lowest]
    if corrected:
        terms = [
            *terms,
            Term(
                "correction",
                gettext_noop("Learned from earlier starts"),
                -correction,
                (
                    info(
                        "correction",
                        gettext_noop("%(starts)s earlier starts on this kind of host left %(gib)s GiB more."),
                        starts=corrected,
                        gib=_gib(correction),
                    ),
                ),
            ),
        ]
    pool = sizing.pool(memory, flags.num_gpu_blocks_override)
    longest = pool.longest(settled.max_model_len)
    unsure = spread + (0 if corrected else 256 * MIB)
    notes = [*model.notes, *sizing.notes, *_file_notes(stages, files, flags, model)]
    problem = _problem(settled, rules, card, requested, pool, memory[lowest], longest, model)
    return Estimate(
        model=model,
        settled=settled,
        rules=rules,
        card=card,
        sizing=sizing,
        weights=weights,
        terms=tuple(terms),
        requested=requested,
        available=memory[lowest],
        low=memory[lowest] - unsure // 2,
        high=memory[lowest] + unsure // 2,
        pool=pool,
        longest=longest,
        problem=problem,
        notes=tuple(notes),
        corrected_by=corrected,
    )


def _file_notes(
    stages: Sequence[tuple[int, Weights, list[Term], int]], files: int, flags: Flags, model: Model
) -> list[Note]:
    """Says so where the weight files are far from what the config.json makes of them."""
    whole = sum(weights.total for _left, weights, _terms, _spread in stages)
    sure = all(weights.exact for _left, weights, _terms, _spread in stages)
    plain = flags.tensor_parallel_size == 1 and not (
        model.draft_layers or flags.max_loras or flags.cpu_offload_gb
    )
    if not (files and sure and plain) or 0.8 * whole <= files <= 1.25 * whole:
        return []
    return [
        warning(
            "files_differ",
            gettext_noop("The weight files have %(files)s GiB; by the config.json they would have %(gib)s."),
            remedy=gettext_noop("Is a download unfinished, or are the weights stored otherwise?"),
            files=_gib(files),
            gib=_gib(whole),
        )
    ]


def _by_files(weights: Weights, files: int, flags: Flags, model: Model) -> Weights:
    """Where tensors are not known one by one, the weight files are the better measure."""
    if not files:
        return weights
    ranks = flags.tensor_parallel_size * flags.pipeline_parallel_size
    on_card = files // ranks
    if weights.exact or (model.quant is not None and model.quant.method == "bitsandbytes"):
        return replace(weights, files=files)
    return replace(
        weights,
        total=on_card,
        low=int(on_card * 0.97),
        high=int(on_card * 1.03),
        files=files,
        parts={"weight files": on_card},
    )


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"


def _terms(
    model: Model,
    settled: Settled,
    card: Card,
    rules: Rules,
    sizing: Sizing,
    weights: Weights,
    *,
    first: bool,
    last: bool,
) -> list[Term]:
    peak = activation(model, settled, card, rules, sizing.block, first=first, last=last)
    beside, captured = outside(model, settled, rules), graphs(model, settled, rules)
    parts = [
        info("part", "%(part)s: %(gib)s GiB", part=name, gib=_gib(part))
        for name, part in sorted(weights.parts.items(), key=lambda one: -abs(one[1]))
    ]
    found = [
        Term("weights", gettext_noop("Weights"), weights.total, tuple(parts)),
        Term(
            "activation",
            gettext_noop("Peak of a forward pass"),
            peak.bytes,
            tuple(
                info(
                    f"peak_{what}",
                    _PEAKS[what],
                    tokens=f"{settled.batched_tokens:,}",
                    requests=f"{settled.sequences:,}",
                    gib=_gib(amount),
                )
                for what, amount in peak.candidates
            ),
        ),
        Term(
            "outside",
            gettext_noop("Outside PyTorch"),
            beside,
            (info("outside", gettext_noop("CUDA's modules, cuBLAS and NCCL, as measured on an H200.")),),
        ),
    ]
    if captured:
        found.append(
            Term(
                "graphs",
                gettext_noop("CUDA graphs"),
                captured,
                (info("graphs", gettext_noop("vLLM's estimate before it captures them; measured.")),),
            )
        )
    return found


_PEAKS = {
    "forward": gettext_noop("The widest layer with %(tokens)s tokens: %(gib)s GiB."),
    "embedding": gettext_noop("While the embedding is compiled for %(tokens)s tokens: %(gib)s GiB."),
    "sampler": gettext_noop("Sampling for %(requests)s requests at once: %(gib)s GiB."),
}


def _correction(
    model: Model, flags: Flags, card: Card, rules: Rules, past: Sequence[Past]
) -> tuple[int, int]:
    """Starts that count, and by how much vLLM found more memory than was reckoned.

    The same model in the same form speaks for itself; else any start with as many cards, else any.
    """
    alike: list[list[int]] = [[], [], []]
    for one in past:
        if one.card.name != card.name or not one.available:
            continue
        try:
            reckoned = estimate(one.model, one.flags, one.card, one.version, files=one.files)
        except ValueError:
            continue
        difference = one.available - reckoned.available
        same_cards = one.flags.tensor_parallel_size == flags.tensor_parallel_size
        same_mode = one.flags.enforce_eager == flags.enforce_eager
        if one.model == model and same_cards and same_mode:
            alike[0].append(difference)
        elif same_cards:
            alike[1].append(difference)
        else:
            alike[2].append(difference)
    for group in alike:
        # a start far off tells of something else (another process on the card), not of this host
        near = [difference for difference in group if abs(difference) < 2 * GIB]
        if near:
            return len(near), int(median(near))
    return 0, 0


def _problem(
    settled: Settled,
    rules: Rules,
    card: Card,
    requested: int,
    pool: Pool,
    available: int,
    longest: int,
    model: Model,
) -> Note | None:
    """Why vLLM would refuse, or None."""
    flags = settled.flags
    if model.limited and flags.max_model_len and flags.max_model_len > model.longest:
        return error(
            "longer_than_model",
            gettext_noop("max-model-len %(length)s is more than the model's own limit of %(limit)s tokens."),
            remedy=gettext_noop("Set max-model-len to %(limit)s or less."),
            field="max_model_len",
            length=f"{flags.max_model_len:,}",
            limit=f"{model.longest:,}",
        )
    free = None if card.free_bytes is None else card.free_bytes - CONTEXT
    if free is not None and free < requested:
        share = max(free, 0) / card.total_bytes
        return error(
            "free_too_little",
            gettext_noop(
                "%(free)s GiB of %(total)s GiB are free on the card; the share asked for is %(asked)s GiB."
            ),
            remedy=gettext_noop("Free the card, or set gpu-memory-utilization to %(share)s or less."),
            field="gpu_memory_utilization",
            free=_gib(max(free, 0)),
            total=_gib(card.total_bytes),
            asked=_gib(requested),
            share=f"{int(share * 100) / 100:.2f}",
        )
    if not pool.layout.groups:
        return None
    if available <= 0:
        wanted = (requested - available + pool.needed(settled.max_model_len)) / card.total_bytes
        return error(
            "no_memory",
            gettext_noop("No memory is left for the cache: %(gib)s GiB."),
            remedy=_room(wanted),
            field="gpu_memory_utilization",
            gib=_gib(available),
            share=f"{ceil(wanted * 100) / 100:.2f}",
        )
    if flags.length_auto:
        if longest > 0:
            return None
    elif pool.fits(settled.max_model_len):
        return None
    needed = pool.needed(settled.max_model_len)
    wanted = (requested - available + needed) / card.total_bytes
    return error(
        "length_too_long",
        gettext_noop(
            "One request of %(length)s tokens needs %(needed)s GiB and the cache has %(gib)s GiB; "
            "%(longest)s tokens are the longest that starts."
        ),
        remedy=_length_or_room(wanted),
        field="max_model_len",
        length=f"{settled.max_model_len:,}",
        needed=_gib(needed),
        gib=_gib(available),
        longest=f"{longest:,}",
        share=f"{ceil(wanted * 100) / 100:.2f}",
    )


def _room(wanted: float) -> str:
    if wanted <= 0.95:
        return gettext_noop("Set gpu-memory-utilization to %(share)s or more.")
    return gettext_noop("Use more cards, smaller weights, or a shorter max-model-len.")


def _length_or_room(wanted: float) -> str:
    if wanted <= 0.95:
        return gettext_noop("Set max-model-len to %(longest)s, or gpu-memory-utilization to %(share)s.")
    return gettext_noop("Set max-model-len to %(longest)s, use an fp8 cache, or more cards.")


def guard(found: Estimate) -> list[Note]:
    """What a save or a start is told: a refusal that is sure, a warning where the bounds leave a doubt."""
    if found.problem is not None:
        sure = found.problem.code in ("longer_than_model", "free_too_little") or (
            found.model.known
            and not found.sizing.pool([found.high] * len(found.sizing.stages)).fits(found.length)
        )
        return [found.problem if sure else replace(found.problem, severity=Severity.WARNING)]
    notes: list[Note] = []
    if found.pool.layout.groups and not found.settled.flags.length_auto:
        tight = found.sizing.pool(
            [found.low] * len(found.sizing.stages), found.settled.flags.num_gpu_blocks_override
        )
        if not tight.fits(found.length):
            notes.append(
                warning(
                    "tight",
                    gettext_noop("This start is close to the limit: one request may not fit by %(gib)s GiB."),
                    remedy=gettext_noop(
                        "Leave a little more room: a shorter max-model-len or a larger share."
                    ),
                    field="max_model_len",
                    gib=_gib(found.pool.needed(found.length) - found.low),
                )
            )
    return notes
