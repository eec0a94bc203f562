"""Bounds of the latency histograms in the rollups of usage. Pure.

They are part of what is stored: another set of bounds needs a migration that makes the rows anew.
"""

from __future__ import annotations

from itertools import accumulate
from math import inf

from engines.metrics.quantile import Quantile, quantile

#: seconds, ascending; a bucket holds what is less than its bound, and the last one everything else
BOUNDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5),
    *(2.5, 3.5, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
COUNT = len(BOUNDS) + 1


def percentile(q: float, counts: list[int] | None) -> Quantile | None:
    """The percentile of counts by bucket, with the bounds it lies between; None without a request."""
    if not counts:
        return None
    return quantile(q, (*BOUNDS, inf), tuple(accumulate(counts)))
