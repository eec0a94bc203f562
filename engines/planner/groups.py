"""How layers of unlike kinds come to share one pool of pages.

Source: vLLM's v1/core/kv_cache_utils.py (get_kv_cache_groups, unify_kv_cache_spec_page_size,
_get_kv_cache_groups_uniform_page_size, _project_kv_cache_groups_to_worker).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.planner.caches import WHOLE, Kind, LayerCache, Load, ceil_div
from engines.planner.rules import Rules


class CannotUnify(ValueError):
    """Pages of unlike sizes that vLLM cannot bring to one size: it refuses such a start."""


@dataclass(frozen=True)
class Group:
    """Layers that share a table of pages. ``layers`` are positions in the model; ``caches`` one per layer."""

    layers: tuple[int, ...]
    caches: tuple[LayerCache, ...]

    @property
    def cache(self) -> LayerCache:
        return self.caches[0]

    def pages(self, length: int, load: Load) -> int:
        """Pages of the group that one request takes."""
        return max((cache.pages(length, load) for cache in self.caches), default=0)


@dataclass(frozen=True)
class Layout:
    """Every group of a model, and what one page number costs over all layers of a card.

    ``uneven`` marks layers of one kind with pages of unlike sizes in a single group.
    """

    groups: tuple[Group, ...]
    padding: int = 0
    uneven: bool = False

    def share(self, layers: frozenset[int]) -> Layout:
        """The part of a pipeline stage that runs ``layers``; a group may be empty there."""
        return Layout(
            tuple(
                Group(
                    tuple(one for one in group.layers if one in layers),
                    tuple(
                        cache for one, cache in zip(group.layers, group.caches, strict=True) if one in layers
                    )
                    or group.caches[:1],
                )
                for group in self.groups
            ),
            self.padding,
            self.uneven,
        )

    @property
    def group_size(self) -> int:
        return max((len(group.layers) for group in self.groups), default=0)

    @property
    def block_bytes(self) -> int:
        """Bytes of one page number on this card: every layer's page of the widest group."""
        if not self.groups:
            return 0
        if self.uneven:
            return sum(cache.page for cache in self.groups[0].caches) if self.groups[0].layers else 0
        return self.groups[0].cache.page * self.group_size

    def request_pages(self, length: int, load: Load) -> int:
        """Page numbers that one request of ``length`` tokens takes, over all groups."""
        return sum(group.pages(length, load) for group in self.groups)

    def request_bytes(self, length: int, load: Load) -> int:
        return self.request_pages(length, load) * self.block_bytes

    @property
    def smallest_block(self) -> int:
        return min((group.cache.block for group in self.groups), default=0)


def lay_out(caches: Sequence[tuple[int, LayerCache]], rules: Rules, *, hybrid: bool = True) -> Layout:
    """Group the caches of a model's layers; ``caches`` pairs a layer's position with what it keeps.

    ``hybrid`` false is --disable-hybrid-kv-cache-manager. Raises CannotUnify.
    """
    kept = [(layer, cache) for layer, cache in caches if cache.kind is not Kind.NONE]
    if not kept:
        return Layout(())
    if not (hybrid and rules.hybrid_groups) and any(cache.kind in WHOLE for _, cache in kept):
        kept = [(layer, cache.as_full()) for layer, cache in kept]
    kinds = {cache for _, cache in kept}
    if len(kinds) == 1:
        return Layout((_group(kept),))
    if _same_slots(kinds):
        return Layout((_group(kept),), uneven=True)
    return _mixed(_unify(kept), rules)


def _group(kept: Sequence[tuple[int, LayerCache]]) -> Group:
    return Group(tuple(layer for layer, _ in kept), tuple(cache for _, cache in kept))


def _same_slots(kinds: set[LayerCache]) -> bool:
    """Every layer needs the same number of slots: one group may hold pages of unlike sizes."""
    if len({cache.block for cache in kinds}) > 1:
        return False
    if all(cache.kind in WHOLE for cache in kinds):
        return True
    first = next(iter(kinds))
    return all(cache.kind is first.kind and cache.window == first.window for cache in kinds)


def _unify(kept: list[tuple[int, LayerCache]]) -> list[tuple[int, LayerCache]]:
    """One page size for all: smaller pages take more tokens, or padding where that does not come out."""
    largest = max(cache.page for _, cache in kept)
    even: list[tuple[int, LayerCache]] = []
    for layer, cache in kept:
        if cache.page == largest:
            even.append((layer, cache))
        elif cache.kind is Kind.STATE:
            even.append((layer, cache.with_page(largest)))
        elif largest % cache.page == 0:
            even.append((layer, cache.with_block(cache.block * (largest // cache.page))))
        else:
            even.append((layer, cache.with_page(largest)))
    return even


def _mixed(kept: list[tuple[int, LayerCache]], rules: Rules) -> Layout:
    alike: dict[LayerCache, list[tuple[int, LayerCache]]] = {}
    for layer, cache in kept:
        alike.setdefault(cache, []).append((layer, cache))
    counts = [len(members) for members in alike.values()]
    size = max(counts) if max(counts) < min(counts) * rules.group_slack else min(counts)
    groups: list[Group] = []
    padding = 0
    for members in alike.values():
        number = ceil_div(len(members), size)
        padding += number * size - len(members)
        # layer i goes to group i mod n, so that every pipeline stage has some of each group
        groups.extend(_group(members[first::number]) for first in range(number))
    return Layout(tuple(groups), padding)
