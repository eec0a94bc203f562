"""Percentiles equal Prometheus's histogram_quantile, also over windows added up from rollups."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engines.metrics.quantile import quantile


def histogram_quantile(q: float, buckets: list[tuple[float, float]]) -> float:
    """Prometheus's documented rule, over (upper bound, cumulative count): the rank q * observations is
    looked for in the buckets; linear interpolation inside; the lowest bucket starts at 0 if its bound is
    positive; in the +Inf bucket the upper bound of the second highest is returned."""
    buckets = sorted(buckets)
    assert math.isinf(buckets[-1][0])
    observations = buckets[-1][1]
    if len(buckets) < 2 or observations == 0:
        return math.nan
    rank = q * observations
    index = next(index for index, (_, count) in enumerate(buckets) if count >= rank)
    bound, count = buckets[index]
    if index == len(buckets) - 1:
        return buckets[-2][0]
    if index == 0 and bound <= 0:
        return bound
    start, before = (buckets[index - 1]) if index else (0.0, 0.0)
    return start + (bound - start) * (rank - before) / (count - before)


histograms = st.lists(st.integers(0, 50), min_size=2, max_size=12)


@given(histograms, st.floats(0.001, 1))
def test_it_equals_histogram_quantile(per_bucket, q):
    assume(sum(per_bucket))
    bounds = [0.1 * 2**n for n in range(len(per_bucket) - 1)] + [math.inf]
    counts = [sum(per_bucket[: n + 1]) for n in range(len(per_bucket))]
    found = quantile(q, bounds, counts)
    assert found is not None
    assert found.value == pytest.approx(histogram_quantile(q, list(zip(bounds, counts, strict=True))))
    assert found.low <= found.value <= found.high


def test_nothing_observed_has_no_percentile():
    assert quantile(0.5, [1.0, math.inf], [0, 0]) is None
    assert quantile(0.5, [], []) is None


def test_the_unbounded_bucket_answers_the_greatest_bound():
    found = quantile(0.99, [1.0, 2.0, math.inf], [0, 1, 100])
    assert (found.value, found.high) == (2.0, math.inf)
