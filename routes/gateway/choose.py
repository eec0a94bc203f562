"""Which target a request goes to. Pure.

Least requests in flight for its weight. With ``prefix_affinity`` the targets are first ordered by a hash of
the prompt's beginning with each (rendezvous), and the first that is not loaded far above the mean is
taken, so that equal beginnings meet the pages that are cached for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from routes.gateway.health import Health
from routes.gateway.paths import Path, serves
from routes.gateway.records import RouteRecord, TargetRecord

#: how far above the mean load a target may be and still be taken for its cache
BOUND = 1.25


class Loaded(Protocol):
    """What is known of a target beside its record."""

    record: TargetRecord
    health: Health
    in_flight: int
    #: a number of its own, for the order of a prefix
    seed: int


def may_serve(record: TargetRecord, path: Path) -> bool:
    """Whether a target takes requests on this path, as far as its record says."""
    return record.state == "ready" and record.weight > 0 and serves(path, record.vllm_version)


def candidates(
    route: RouteRecord, known: Iterable[Loaded], path: Path, tried: Collection[int], now: float
) -> list[Loaded]:
    """Targets that may take the request now."""
    return [
        target
        for target in known
        if target.record.id not in tried and target.health.may_take(now) and may_serve(target.record, path)
    ]


def choose(route: RouteRecord, fit: list[Loaded], mark: int, turn: int) -> Loaded:
    """One of ``fit``, which is not empty. ``mark`` is of the prompt's beginning; ``turn`` breaks ties."""
    if len(fit) == 1:
        return fit[0]
    if route.policy == "prefix_affinity":
        return _by_prefix(fit, mark)
    least: list[Loaded] = []
    lowest = 0.0
    for target in fit:
        load = target.in_flight / target.record.weight
        if not least or load < lowest:
            least, lowest = [target], load
        elif load == lowest:
            least.append(target)
    return _in_turn(least, turn)


def _in_turn(equal: list[Loaded], turn: int) -> Loaded:
    if len(equal) == 1:
        return equal[0]
    place = turn % sum(target.record.weight for target in equal)
    for target in equal:
        place -= target.record.weight
        if place < 0:
            return target
    return equal[-1]


def mixed(number: int) -> int:
    """32 bits stirred until every one of them depends on each (the end of MurmurHash3)."""
    number = (number ^ number >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    number = (number ^ number >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return number ^ number >> 16


def _by_prefix(fit: list[Loaded], mark: int) -> Loaded:
    weight = sum(target.record.weight for target in fit)
    bound = BOUND * (sum(target.in_flight for target in fit) + 1) / weight
    ordered = sorted(fit, key=lambda target: mixed(mark ^ target.seed))
    for target in ordered:
        if (target.in_flight + 1) / target.record.weight <= max(bound, 1 / target.record.weight):
            return target
    return min(fit, key=lambda target: target.in_flight / target.record.weight)
