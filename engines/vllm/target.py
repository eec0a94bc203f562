"""A profile against where it is to run: one installed vLLM, the host's cards, the model's shape."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engines.vllm.notes import Mend, Note, Severity, Unreadable, error, gettext_noop, info, mend, warning
from engines.vllm.releases import Release, Source
from engines.vllm.spec import ServeSpec, parse_gpus
from engines.vllm.translate import Translation, translate

#: compute capability by the name that nvidia-smi gives; the first that matches
_CARDS: tuple[tuple[str, float], ...] = (
    (r"\bGB10\b", 12.1),
    (r"\bG?B300\b", 10.3),
    (r"\bG?B[12]00\b", 10.0),
    (r"RTX PRO \d+ .*Blackwell|RTX 50\d\d", 12.0),
    (r"\bG?H(100|200|800|20)\b", 9.0),
    (r"\bL(2|4|20|40S?)\b|RTX 40\d\d|RTX \d000 .*Ada", 8.9),
    (r"\bA(2|10G?|16|40)\b|RTX A\d{4}|RTX 30\d\d", 8.6),
    (r"\bA(30|100|800)\b", 8.0),
    (r"\bT4\b|RTX 20\d\d|Quadro RTX|TITAN RTX|GTX 16\d\d", 7.5),
    (r"\bV100\b|TITAN V\b", 7.0),
    (r"\bP100\b", 6.0),
    (r"\bP(4|40)\b|GTX 10\d\d", 6.1),
)
#: the release in which a model family was first read: (pattern of its name, words, release)
_FAMILIES: tuple[tuple[str, str, str], ...] = ((r"(^|/)Qwen3-(?!Next|VL|Omni)", "Qwen3", "0.8.4"),)


@dataclass(frozen=True)
class Card:
    """A GPU as a probe found it; memory in MiB."""

    index: str
    name: str
    uuid: str = ""
    memory_mib: float | None = None

    @property
    def capability(self) -> float | None:
        """Compute capability as nvidia counts it (9.0); None for a card not known here."""
        return next((number for pattern, number in _CARDS if re.search(pattern, self.name)), None)


@dataclass(frozen=True)
class Shape:
    """What is known of the model: attention heads, and the kind of its attention (``mla``, ``hybrid``
    or "" for ordinary or unknown)."""

    heads: int | None = None
    kv_heads: int | None = None
    attention: str = ""


@dataclass(frozen=True)
class Target:
    """``name`` is for people. ``cards`` is None where nobody has looked; ``memory_bytes`` is the host's."""

    name: str
    release: Release
    cards: tuple[Card, ...] | None = None
    memory_bytes: int | None = None
    shape: Shape = Shape()

    @property
    def cpu(self) -> bool:
        return "cpu" in self.release.version


@dataclass(frozen=True)
class Verdict:
    """What a target makes of a profile. An error keeps an engine from starting there."""

    target: Target
    translation: Translation
    notes: tuple[Note, ...]

    @property
    def starts(self) -> bool:
        return not any(note.severity is Severity.ERROR for note in self.notes)


def judge(spec: ServeSpec, target: Target) -> Verdict:
    translation = translate(spec, target.release)
    notes = [
        *_release_notes(spec, target),
        *translation.notes,
        *_prefill(spec, target),
        *_swap(spec, target),
        *_heads(spec, target),
        *_block_size(spec, target),
        *_cards(spec, target),
        *_cache_type(spec, target),
    ]
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    return Verdict(target, translation, tuple(sorted(notes, key=lambda note: order.index(note.severity))))


def _release_notes(spec: ServeSpec, target: Target) -> list[Note]:
    release = target.release
    found: list[Note] = []
    if release.source is Source.NEAREST:
        found.append(
            warning(
                "release_unknown",
                gettext_noop("The flags of vLLM %(version)s are not known here: those of %(near)s stand in."),
                remedy=gettext_noop("Read them from the host to be sure."),
                version=release.version,
                near=release.read_from,
            )
        )
    for pattern, words, since in _FAMILIES:
        if re.search(pattern, spec.model) and not release.at_least(since):
            found.append(
                error(
                    "model_too_new",
                    gettext_noop("vLLM %(version)s cannot load %(family)s models: they came with %(since)s."),
                    remedy=gettext_noop("Use that release or a later one."),
                    field="model",
                    version=release.version,
                    family=words,
                    since=since,
                )
            )
    return found


def _prefill(spec: ServeSpec, target: Target) -> list[Note]:
    """Up to 0.7 prompts go in whole unless told otherwise; the profile's own rule covers an explicit no."""
    length, batched = spec.values.get("max_model_len"), spec.values.get("max_num_batched_tokens")
    if (
        target.release.at_least("0.8.0")
        or spec.values.get("enable_chunked_prefill") is not None
        or not isinstance(length, int)
        or batched is None
        or not batched < length <= 32768
    ):
        return []
    return [
        error(
            "batch_below_length",
            gettext_noop(
                "vLLM %(version)s cuts no prompts unless told to, and a step of %(batched)d tokens holds no"
                " request of %(length)d."
            ),
            remedy=gettext_noop("Turn chunked prefill on, or raise the tokens in a step."),
            field="max_num_batched_tokens",
            mends=(
                mend(gettext_noop("Turn chunked prefill on"), {"enable_chunked_prefill": "on"}),
                mend(
                    gettext_noop("Raise tokens in a step to %(value)s"),
                    {"max_num_batched_tokens": str(length)},
                    value=length,
                ),
            ),
            version=target.release.version,
            batched=batched,
            length=length,
        )
    ]


def _swap(spec: ServeSpec, target: Target) -> list[Note]:
    swap = spec.values.get("swap_space")
    if swap is None or "--swap-space" not in target.release.flags or not target.release.at_least("0.8.0"):
        return []
    taken = swap * int(spec.values.get("tensor_parallel_size") or 1)
    out = (mend(gettext_noop("Take %(flag)s out"), {"swap_space": ""}, flag="--swap-space"),)
    if target.memory_bytes and taken * 2**30 > 0.7 * target.memory_bytes:
        return [
            error(
                "swap_too_large",
                gettext_noop(
                    "Swap space of %(taken)s GiB is over 70%% of the host's memory: vLLM %(version)s does not"
                    " start with it."
                ),
                remedy=gettext_noop("It has no effect there anyway: take it out."),
                field="swap_space",
                mends=out,
                taken=f"{taken:g}",
                version=target.release.version,
            )
        ]
    return [
        warning(
            "swap_idle",
            gettext_noop("Swap space has no effect in the engine of vLLM %(version)s."),
            field="swap_space",
            mends=out,
            version=target.release.version,
        )
    ]


def _heads(spec: ServeSpec, target: Target) -> list[Note]:
    parallel, heads = int(spec.values.get("tensor_parallel_size") or 1), target.shape.heads
    if not heads or heads % parallel == 0:
        return []
    fits = [size for size in range(1, parallel) if heads % size == 0]
    return [
        error(
            "heads_not_divisible",
            gettext_noop("%(heads)d attention heads cannot be shared out evenly over %(cards)d GPUs."),
            remedy=gettext_noop("Take a tensor parallel size that divides the heads."),
            field="tensor_parallel_size",
            mends=[_parallel(size) for size in (*fits[-1:], *_next_fit(heads, parallel, target))],
            heads=heads,
            cards=parallel,
        )
    ]


def _next_fit(heads: int, parallel: int, target: Target) -> list[int]:
    most = len(target.cards) if target.cards else 0
    return [size for size in range(parallel + 1, most + 1) if heads % size == 0][:1]


def _parallel(size: int) -> Mend:
    return mend(
        gettext_noop("Tensor parallel %(size)d"),
        {"tensor_parallel_size": str(size)},
        size=size,
    )


def _block_size(spec: ServeSpec, target: Target) -> list[Note]:
    size, attention = spec.values.get("block_size"), target.shape.attention
    if size is None:
        return []
    leave = mend(gettext_noop("Leave the page size to vLLM"), {"block_size": ""})
    if target.cpu and size % 32:
        # seen with 0.32.0: "No common block size for 16 (CPU_ATTN: [MultipleOf(32)])"
        say = error if target.release.at_least("0.32.0") else warning
        return [
            say(
                "block_size_cpu",
                gettext_noop(
                    "On a CPU vLLM %(version)s takes pages of 32 tokens or a multiple, not %(size)d."
                ),
                field="block_size",
                mends=(leave, mend(gettext_noop("Write %(new)s"), {"block_size": "32"}, new="32")),
                version=target.release.version,
                size=size,
            )
        ]
    if target.release.at_least("0.18.0") and size % 16 and not target.cpu:
        return [
            error(
                "block_size_odd",
                gettext_noop("No attention backend takes pages of %(size)d tokens: they go by 16."),
                field="block_size",
                mends=(leave, mend(gettext_noop("Write %(new)s"), {"block_size": "16"}, new="16")),
                size=size,
            )
        ]
    if attention == "mla" and size not in {64, 128}:
        return [
            warning(
                "block_size_mla",
                gettext_noop(
                    "This model's latent attention (MLA) runs fastest with pages of 64 or 128 tokens; with"
                    " %(size)d vLLM has to fall back to a slower backend, or refuses to start."
                ),
                field="block_size",
                mends=(leave, mend(gettext_noop("Write %(new)s"), {"block_size": "64"}, new="64")),
                size=size,
            )
        ]
    if attention == "hybrid":
        return [
            info(
                "block_size_hybrid",
                gettext_noop("A hybrid model sets its own page size: vLLM may raise this one."),
                field="block_size",
                mends=(leave,),
            )
        ]
    return []


def _cards(spec: ServeSpec, target: Target) -> list[Note]:
    if target.cards is None or target.cpu or spec.values.get("distributed_executor_backend") == "ray":
        return []
    there = len(target.cards)
    try:
        named = parse_gpus(spec.gpus)
    except Unreadable:
        return []
    missing = [
        name
        for name in named
        if not name.startswith("MIG-")
        and not any(card.index == name or card.uuid.startswith(name) for card in target.cards)
    ]
    if missing:
        return [
            error(
                "gpu_not_there",
                gettext_noop("The host has no GPU %(missing)s; it has %(there)d."),
                remedy=gettext_noop("Name GPUs that nvidia-smi shows there, or none for all."),
                field="gpus",
                mends=(mend(gettext_noop("Name no GPU"), {"gpus": ""}),),
                missing=", ".join(missing),
                there=there,
            )
        ]
    if spec.cards <= there:
        return []
    return [
        error(
            "more_gpus_than_host",
            gettext_noop("This takes %(cards)d GPUs, and the host has %(there)d."),
            remedy=gettext_noop("Lower the parallel sizes, or choose another host."),
            field="tensor_parallel_size",
            mends=_fewer(spec, target, there),
            cards=spec.cards,
            there=there,
        )
    ]


def _fewer(spec: ServeSpec, target: Target, there: int) -> Sequence[Mend]:
    others = spec.cards // int(spec.values.get("tensor_parallel_size") or 1)
    heads = target.shape.heads
    sizes = [
        size
        for size in range(1, there // max(1, others) + 1)
        if (heads % size == 0 if heads else size & (size - 1) == 0)
    ]
    return [_parallel(sizes[-1])] if sizes else []


def _cache_type(spec: ServeSpec, target: Target) -> list[Note]:
    kind: Any = spec.values.get("kv_cache_dtype")
    if not isinstance(kind, str) or not kind.startswith(("fp8", "nvfp4")) or not target.cards or target.cpu:
        return []
    known = [(card.capability, card.name) for card in target.cards if card.capability is not None]
    if not known:
        return []
    capability, name = min(known)
    plain = (mend(gettext_noop("Keep the model's own type"), {"kv_cache_dtype": ""}),)
    if kind.startswith("nvfp4") and capability < 10:
        return [
            error(
                "cache_type_card",
                gettext_noop("%(card)s cannot keep an nvfp4 cache: it needs a Blackwell card."),
                field="kv_cache_dtype",
                mends=(
                    mend(gettext_noop("Write %(new)s"), {"kv_cache_dtype": "fp8"}, new="fp8"),
                    *plain,
                ),
                card=name,
            )
        ]
    if kind.startswith("fp8") and capability < 8:
        return [
            error(
                "cache_type_card",
                gettext_noop("%(card)s cannot keep an fp8 cache: it needs an Ampere card or a later one."),
                field="kv_cache_dtype",
                mends=plain,
                card=name,
            )
        ]
    if kind.startswith("fp8") and capability < 8.9:
        return [
            warning(
                "cache_type_slow",
                gettext_noop(
                    "%(card)s has no fp8 arithmetic: the cache takes half the memory, and each step converts"
                    " it."
                ),
                field="kv_cache_dtype",
                mends=plain,
                card=name,
            )
        ]
    return []
