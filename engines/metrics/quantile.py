"""Percentiles of bucket counts, by Prometheus's rule. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Quantile:
    """A percentile's estimate; the true value lies in its bucket, from ``low`` to ``high``."""

    value: float
    low: float
    high: float


def quantile(q: float, bounds: Sequence[float], counts: Sequence[float]) -> Quantile | None:
    """Prometheus's histogram_quantile for 0 <= q <= 1 over cumulative ``counts`` at upper ``bounds``.

    Interpolates within the bucket; in the last, unbounded bucket the answer is the greatest finite bound;
    the first bucket begins at 0 when its bound is positive. None without an observation.
    """
    if not counts or counts[-1] <= 0 or len(bounds) < 2:
        return None
    total = counts[-1]
    rank = q * total
    at = min(bisect_left(counts, rank), len(bounds) - 1)
    if at == len(bounds) - 1:
        return Quantile(bounds[-2], bounds[-2], inf)
    high = bounds[at]
    if at == 0 and high <= 0:
        return Quantile(high, -inf, high)
    low = bounds[at - 1] if at else 0.0
    below = counts[at - 1] if at else 0
    inside = counts[at] - below
    if inside <= 0:  # q = 0 and an empty bucket
        return Quantile(low, low, high)
    return Quantile(low + (high - low) * (rank - below) / inside, low, high)
