"""The planner over what kvadmin knows: models on hosts, their GPUs, and what earlier starts logged."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engines.models import Engine, EngineStart, Host, ModelConfig
from engines.planner.estimate import Estimate, Past, estimate
from engines.planner.flags import PROCESSOR, Card, Flags, flags_of, seen_bytes, values_of
from engines.planner.known import known_config
from engines.planner.model import Model
from engines.planner.reading import read_model
from engines.planner.rules import GIB, MIB
from engines.vllm.notes import Unreadable
from engines.vllm.spec import ServeSpec, parse_gpus

#: earlier starts of a host that correct an estimate
_LATEST = 8
#: bytes of the cache where VLLM_CPU_KVCACHE_SPACE is not set
_PROCESSOR_SPACE = 4 * GIB
#: the card that stands in while no host is chosen
STAND_IN = Card("NVIDIA H100 80GB HBM3", seen_bytes(81559))


@dataclass(frozen=True)
class Source:
    """A model's shape and where it is from; ``files`` are the bytes of its weight files, 0 if not known."""

    model: Model
    files: int = 0
    on_host: bool = False


def source_of(spec: ServeSpec, host: Host | None, pasted: str = "") -> Source | None:
    """The shape of the profile's model: as pasted, as it lies on the host, on any host, or from the table.

    None where nothing is known of it; Unreadable where its config.json cannot be used.
    """
    rows = ModelConfig.objects.filter(path=spec.model) | ModelConfig.objects.filter(name=spec.model)
    found = rows.filter(host=host).first() if host is not None else None
    row = found or rows.order_by("-read_at").first()
    config: Any = row.config if row is not None else known_config(spec.model)
    if pasted.strip():
        config, row, found = pasted, None, None
    if config is None:
        return None
    overrides = spec.values.get("hf_overrides")
    model = read_model(
        config,
        overrides=overrides if isinstance(overrides, dict) else None,
        dtype=str(spec.values.get("dtype") or "auto"),
        quantization=str(spec.values.get("quantization") or ""),
    )
    return Source(model, (row.weight_bytes or 0) if row is not None else 0, found is not None)


def card_of(host: Host | None, spec: ServeSpec, *, idle: bool = False) -> Card | None:
    """The fullest of the GPUs that the profile would use, as the last probe saw them; None without any.

    ``idle`` counts what our own engines hold as free.
    """
    if host is None:
        return None
    try:
        wanted = parse_gpus(spec.gpus)
    except Unreadable:
        wanted = []
    cards = [
        gpu
        for gpu in host.facts.get("gpus") or ()
        if not wanted or str(gpu.get("index")) in wanted or gpu.get("uuid") in wanted
    ]
    cards = [gpu for gpu in cards if gpu.get("memory_total_mib")][: max(spec.cards, 1)]
    if not cards:
        return None
    built = [_card(gpu, idle) for gpu in cards]
    return min(built, key=lambda card: (card.total_bytes, card.free_bytes or 0))


def _card(gpu: dict[str, Any], idle: bool) -> Card:
    total, used, free = (gpu.get(f"memory_{part}_mib") for part in ("total", "used", "free"))
    ours = sum(one.get("memory_mib") or 0 for one in gpu.get("processes") or () if one.get("ours"))
    if free is not None and idle:
        free += ours
    return Card(
        str(gpu.get("name", "")),
        seen_bytes(total, used, gpu.get("memory_free_mib")),
        None if free is None else int(free * MIB),
    )


def _extra(spec: ServeSpec) -> dict[str, Any]:
    """Flags among the extra arguments; none where they cannot be split, which the form says itself."""
    try:
        return values_of(shlex.split(spec.extra_arguments))
    except ValueError:
        return {}


def flags_for(spec: ServeSpec, version: str) -> tuple[Flags, bool]:
    """The flags that decide memory, and whether vLLM's build for processors is meant."""
    flags = flags_of({**_extra(spec), **spec.values})
    if "cpu" not in version:
        return flags, False
    space = str(spec.environment.get("VLLM_CPU_KVCACHE_SPACE") or "")
    size = int(float(space) * GIB) if space.replace(".", "", 1).isdigit() else _PROCESSOR_SPACE
    return replace(flags, kv_cache_memory_bytes=size or _PROCESSOR_SPACE), True


def plan(
    spec: ServeSpec,
    host: Host | None,
    version: str,
    *,
    idle: bool = True,
    past: Sequence[Past] | None = None,
    pasted: str = "",
) -> Estimate | None:
    """What a start of ``spec`` on ``host`` would find. None where model or card are not known.

    Raises Unreadable where the model's config.json, or flags that contradict it, cannot be planned.
    """
    source = source_of(spec, host, pasted)
    if source is None:
        return None
    flags, processor = flags_for(spec, version)
    card = Card(PROCESSOR, 64 * GIB) if processor else card_of(host, spec, idle=idle)
    if card is None and host is None:
        card = STAND_IN
    if card is None:
        return None
    if past is None:
        past = () if processor or host is None else past_starts(host, version)
    return estimate(source.model, flags, card, version, files=source.files, past=past)


def past_starts(host: Host, version: str, *, before: EngineStart | None = None) -> list[Past]:
    """Starts on the host by the same vLLM that logged the memory for their cache, newest first."""
    rows = EngineStart.objects.filter(
        engine__host=host, vllm_version=version, facts__has_key="kv_gib", revision__isnull=False
    ).select_related("revision")
    if before is not None:
        rows = rows.filter(created_at__lt=before.created_at)
    found: list[Past] = []
    for row in rows.order_by("-created_at")[:_LATEST]:
        spec = row.revision.shown_spec
        try:
            source = source_of(spec, host)
        except Unreadable:
            continue
        card = card_of(host, spec)
        if source is None or card is None:
            continue
        flags, processor = flags_for(spec, version)
        if not processor:
            logged = int(row.facts["kv_gib"] * GIB)
            whole = replace(card, free_bytes=None)
            found.append(Past(source.model, flags, whole, version, logged, source.files))
    return found


@dataclass(frozen=True)
class Compared:
    """One start: what was expected of it beforehand and what it logged. None where either is not known."""

    start: EngineStart
    tokens: int | None = None
    found_tokens: int | None = None
    memory_gib: float | None = None
    found_gib: float | None = None
    concurrency: float | None = None
    found_concurrency: float | None = None
    corrected_by: int = 0

    @property
    def error(self) -> float | None:
        """How far off the tokens were, in percent; positive when too many were expected."""
        if not self.tokens or not self.found_tokens:
            return None
        return (self.tokens - self.found_tokens) / self.found_tokens * 100


def compare(starts: Iterable[EngineStart]) -> list[Compared]:
    """Expected beside found for each start, corrected only by starts before it."""
    return [_compared(start) for start in starts]


def _compared(start: EngineStart) -> Compared:
    facts = start.facts
    found = Compared(
        start,
        found_tokens=facts.get("kv_tokens"),
        found_gib=facts.get("kv_gib"),
        found_concurrency=facts.get("max_concurrency"),
    )
    if start.revision is None or not start.vllm_version:
        return found
    host = start.engine.host
    try:
        past = past_starts(host, start.vllm_version, before=start)
        expected = plan(start.revision.shown_spec, host, start.vllm_version, past=past)
    except Unreadable:
        return found
    if expected is None:
        return found
    return replace(
        found,
        tokens=expected.tokens if expected.pool.blocks else None,
        memory_gib=expected.available / GIB,
        concurrency=expected.concurrency if expected.pool.blocks else None,
        corrected_by=expected.corrected_by,
    )


def comparable_starts(engines: Iterable[Engine]) -> Any:
    """Starts whose log told the cache's size, newest first."""
    return (
        EngineStart.objects.filter(engine__in=engines, facts__has_key="kv_tokens")
        .select_related("engine__host", "revision__profile")
        .order_by("-created_at")
    )
