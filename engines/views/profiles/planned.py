"""What a profile would find on each of its targets: the planner's figures in words, with a chart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

from django.http import QueryDict
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from engines.models import Host, Profile
from engines.planner.caches import Kind
from engines.planner.estimate import Estimate, guard
from engines.planner.flags import PROCESSOR
from engines.planner.reverse import ways
from engines.planner.rules import GIB
from engines.planning import STAND_IN, plan
from engines.views.profiles.checked import Fix, title_of
from engines.vllm.notes import Severity, Unreadable, gettext_noop
from engines.vllm.spec import ServeSpec
from engines.vllm.target import Target
from kvadmin.numbers import whole_number

#: width and height of the chart's own units
_WIDTH, _HEIGHT = 320, 120
#: targets that are planned for; each costs some milliseconds of the preview
_MOST = 4
#: bounds of what may be asked for
_MOST_REQUESTS, _MOST_TOKENS = 100_000, 100_000_000

_TONES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFO: "info"}
_PARTS = {
    "attention": gettext_noop("attention"),
    "feed-forward": gettext_noop("feed-forward layers"),
    "experts": gettext_noop("experts"),
    "shared experts": gettext_noop("shared experts"),
    "state layers": gettext_noop("state layers"),
    "embeddings": gettext_noop("embeddings"),
    "output head": gettext_noop("output head"),
    "norms": gettext_noop("norms"),
    "buffers": gettext_noop("tables and scales"),
    "towers": gettext_noop("image and audio parts"),
    "draft model": gettext_noop("draft model"),
    "adapters": gettext_noop("LoRA slots"),
    "weight files": gettext_noop("weight files on disk"),
    "kept in the host's memory": gettext_noop("kept in the host's memory"),
}

_KINDS = {
    Kind.FULL: gettext_noop("full attention"),
    Kind.LATENT: gettext_noop("latent attention"),
    Kind.INDEX: gettext_noop("index of sparse attention"),
    Kind.SLIDING: gettext_noop("sliding window"),
    Kind.CHUNKED: gettext_noop("chunked attention"),
    Kind.STATE: gettext_noop("state"),
    Kind.CROSS: gettext_noop("cross attention"),
    Kind.NONE: gettext_noop("no cache"),
}


@dataclass(frozen=True)
class Figure:
    """One number of the plan with the arithmetic behind it."""

    label: str
    value: str
    why: list[str]


@dataclass(frozen=True)
class Point:
    length: int
    requests: float
    before: float | None


@dataclass(frozen=True)
class Planned:
    """One target's plan. ``note`` says why there is none; ``line`` and ``before`` are points of the chart."""

    title: str
    note: str = ""
    starts: bool = False
    findings: list[tuple[str, str]] = field(default_factory=list)
    #: ways to carry what was asked for, each with a button that sets its flags
    ways: list[tuple[str, list[Fix]]] = field(default_factory=list)
    lead: list[Figure] = field(default_factory=list)
    memory: list[Figure] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    line: str = ""
    before: str = ""
    highest: str = ""


@dataclass(frozen=True)
class Asked:
    """What somebody asks beside the profile: a config.json, and so many requests of a length."""

    config: str = ""
    requests: int | None = None
    length: int | None = None

    @classmethod
    def of(cls, post: QueryDict) -> Asked:
        requests, length = whole_number(post.get("plan_requests")), whole_number(post.get("plan_length"))
        return cls(
            post.get("plan_config", ""),
            requests if requests and requests <= _MOST_REQUESTS else None,
            length if length and length <= _MOST_TOKENS else None,
        )


def planned_for(
    spec: ServeSpec, targets: Sequence[Target], profile: Profile | None, asked: Asked
) -> list[Planned]:
    hosts = {host.name: host for host in Host.objects.filter(name__in=[target.name for target in targets])}
    present = profile.latest if profile is not None else None
    return [
        _planned(spec, target, hosts.get(target.name), present.shown_spec if present else None, asked)
        for target in targets[:_MOST]
    ]


def _planned(
    spec: ServeSpec, target: Target, host: Host | None, present: ServeSpec | None, asked: Asked
) -> Planned:
    title = title_of(target)
    version = target.release.version
    try:
        found = plan(spec, host, version, pasted=asked.config)
        if found is None:
            return Planned(title, _missing(spec, host))
    except Unreadable as problem:
        return Planned(title, problem.note.text(_))
    earlier = _earlier(present, host, version, spec)
    points = _points(found, earlier)
    line, before, highest = _drawn(points)
    notes = [*guard(found), *found.notes]
    findings = [(_TONES[one.severity], one.text(_)) for one in notes]
    if host is None and found.card == STAND_IN:
        findings.append(("info", _("No host is chosen: reckoned for one H100 with 80 GB.")))
    return Planned(
        title=title,
        starts=found.starts,
        findings=findings,
        ways=_ways(found, host, asked),
        lead=_lead(found),
        memory=_memory(found),
        points=points,
        line=line,
        before=before,
        highest=highest,
    )


def _ways(found: Estimate, host: Host | None, asked: Asked) -> list[tuple[str, list[Fix]]]:
    """How to carry the requests that were asked for, fewest cards first."""
    if not asked.requests or not asked.length or found.card.name == PROCESSOR:
        return []
    if asked.length > found.model.longest:
        text = _("The model itself reads up to %(limit)s tokens.") % {"limit": _whole(found.model.longest)}
        return [(text, [])]
    most = len(host.facts.get("gpus") or ()) if host is not None else 8
    answers = ways(
        found.model,
        found.settled.flags,
        found.card,
        found.rules.text,
        asked.requests,
        asked.length,
        most_cards=max(most, 1),
    )
    if not answers:
        return [(_("No share and cache type carries that on the GPUs of this host."), [])]
    out = []
    for answer in answers:
        text = ngettext(
            "%(cards)s GPU, a share of %(share)s, cache type %(kind)s.",
            "%(cards)s GPUs, a share of %(share)s, cache type %(kind)s.",
            answer.cards,
        ) % {
            "cards": answer.cards,
            "share": number_format(answer.utilization, 2),
            "kind": answer.cache_type,
        }
        sets = {
            "gpu_memory_utilization": f"{answer.utilization:.2f}",
            "kv_cache_dtype": answer.cache_type,
            "tensor_parallel_size": str(answer.cards),
            "max_num_seqs": str(answer.found.settled.sequences),
            "max_model_len": str(answer.found.settled.max_model_len),
        }
        out.append((text, [Fix(_("Set these"), json.dumps(sets))]))
    return out


def _missing(spec: ServeSpec, host: Host | None) -> str:
    if host is not None and not host.facts.get("gpus"):
        return _("No GPU is known on this host: probe it, and its memory is planned with.")
    return _(
        "The shape of %(model)s is not known: probe a host that has it, and kvadmin reads its config.json."
    ) % {"model": spec.model}


def _earlier(present: ServeSpec | None, host: Host | None, version: str, spec: ServeSpec) -> Estimate | None:
    """The profile as it is saved, where the draft differs from it."""
    if present is None or (present.model, present.values, present.gpus) == (
        spec.model,
        spec.values,
        spec.gpus,
    ):
        return None
    try:
        return plan(present, host, version)
    except Unreadable:
        return None


def _whole(value: float) -> str:
    return number_format(int(value), force_grouping=True)


def _decimal(value: float, places: int = 1) -> str:
    return number_format(value, places, force_grouping=True)


def _gib(size: float) -> str:
    return _("%(size)s GiB") % {"size": _decimal(size / GIB, 2)}


def _lead(found: Estimate) -> list[Figure]:
    pool, length = found.pool, found.length
    if not pool.layout.groups:
        return [Figure(_("Cache"), _("none"), [_("No layer of this model keeps anything of a request.")])]
    groups = [
        _("%(layers)s layers, %(kind)s: %(page)s bytes for %(block)s tokens.")
        % {
            "layers": len(group.layers),
            "kind": _(_KINDS[group.cache.kind]),
            "page": _whole(group.cache.page),
            "block": _whole(group.cache.block),
        }
        for group in pool.layout.groups
    ]
    pages = pool.request_blocks(length)
    return [
        Figure(
            _("Requests at once"),
            _decimal(found.concurrency * found.replicas),
            [
                _("%(blocks)s pages ÷ %(pages)s pages of a request with %(length)s tokens.")
                % {"blocks": _whole(pool.blocks), "pages": _whole(pages), "length": _whole(length)},
                _("max-num-seqs lets %(n)s run.") % {"n": _whole(found.settled.sequences)},
            ],
        ),
        Figure(
            _("Pool"),
            _("%(tokens)s tokens") % {"tokens": _whole(found.tokens)},
            [
                *groups,
                _("%(memory)s ÷ %(bytes)s bytes per page = %(blocks)s pages.")
                % {
                    "memory": _gib(found.available),
                    "bytes": _whole(pool.block_bytes),
                    "blocks": _whole(pool.blocks),
                },
                _("%(bytes)s bytes per token.") % {"bytes": _whole(found.sizing.token_bytes)},
            ],
        ),
        Figure(
            _("Longest that starts"),
            _("%(tokens)s tokens") % {"tokens": _whole(pool.longest(max(found.model.longest, length)))},
            [
                _("One request of %(length)s tokens needs %(needed)s.")
                % {"length": _whole(length), "needed": _gib(pool.needed(length))},
                _("The model itself reads up to %(limit)s tokens.") % {"limit": _whole(found.model.longest)},
            ],
        ),
    ]


def _memory(found: Estimate) -> list[Figure]:
    fixed = found.card.name == PROCESSOR or found.settled.flags.kv_cache_memory_bytes
    if fixed:
        return [Figure(_("For the cache"), _gib(found.available), [_("Set by hand, whatever else is used.")])]
    share = number_format(found.settled.utilization, 2)
    out = [
        Figure(
            _("vLLM may take"),
            _gib(found.requested),
            [
                _("%(share)s × %(total)s of the card.")
                % {"share": share, "total": _gib(found.card.total_bytes)}
            ],
        )
    ]
    for term in found.terms:
        why = [note.text(_) if note.code != "part" else _part(note.params) for note in term.why]
        out.append(Figure(_(term.label), "− " + _gib(term.bytes), why))
    spread = max(found.high - found.available, found.available - found.low)
    why = [_("Give or take %(spread)s.") % {"spread": _gib(spread)}]
    if found.corrected_by:
        why.append(
            ngettext(
                "Corrected by %(n)s earlier start on this host.",
                "Corrected by %(n)s earlier starts on this host.",
                found.corrected_by,
            )
            % {"n": found.corrected_by}
        )
    out.append(Figure(_("For the cache"), _gib(found.available), why))
    return out


def _part(params: Any) -> str:
    name = str(params["part"])
    return f"{_(_PARTS.get(name, name))}: {params['gib']} GiB"


def _points(found: Estimate, earlier: Estimate | None) -> list[Point]:
    curve = found.curve()
    if earlier is None or not earlier.starts:
        return [Point(length, requests, None) for length, requests in curve]
    limit = float(earlier.settled.sequences)
    return [
        Point(
            length,
            requests,
            min(earlier.pool.concurrency(length), limit) * earlier.replicas
            if length <= earlier.length
            else None,
        )
        for length, requests in curve
    ]


def _drawn(points: list[Point]) -> tuple[str, str, str]:
    """Both lines in the chart's units, over lengths on a logarithmic scale."""
    if len(points) < 2:
        return "", "", ""
    first, last = points[0].length, points[-1].length
    highest = max(max(point.requests, point.before or 0) for point in points) or 1

    def at(length: int, requests: float) -> str:
        across = log(length / first) / log(last / first) if last > first else 0
        return f"{across * _WIDTH:.1f},{_HEIGHT - requests / highest * _HEIGHT:.1f}"

    line = " ".join(at(point.length, point.requests) for point in points)
    before = " ".join(at(point.length, point.before) for point in points if point.before is not None)
    return line, before, _decimal(highest)
