"""Which canonical metrics are kept, in the order of the tables' columns. Pure.

The tables (engines/migrations: metric storage) have for each gauge here one column in
``engines_sample`` and ``_avg``, ``_min``, ``_max``, ``_last`` in the rollups; for each counter one column
(the counter itself, or its increase in a rollup); for each histogram its bucket counts and ``_sum``.
To keep another metric: add it here and in a migration.
"""

from __future__ import annotations

GAUGES = (
    "kv_usage_ratio",
    "requests_running",
    "requests_waiting",
    "waiting_capacity",
    "waiting_deferred",
    "requests_swapped",
    "cpu_kv_usage_ratio",
    "prefix_cache_hit_rate_gauge",
    "awake_ratio",
)
COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "prompt_tokens_cached",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "external_prefix_cache_queries",
    "external_prefix_cache_hits",
    "preemptions",
    "request_success",
    "finished_stop",
    "finished_length",
    "finished_abort",
    "finished_error",
    "spec_accepted",
    "spec_draft",
    "mm_cache_queries",
    "mm_cache_hits",
    "admission_rejections",
    "est_flops",
)
HISTOGRAMS = (
    "ttft",
    "inter_token_latency",
    "request_tpot_mean",
    "e2e_latency",
    "queue_time",
    "prefill_time",
    "decode_time",
    "prompt_len_hist",
    "gen_len_hist",
    "iteration_tokens",
)

#: engines_sample's columns behind engine_id and taken_at: those of every row, those of some
SCALARS = ("process_start", *GAUGES, *COUNTERS)
BUCKETS = ("layouts", *HISTOGRAMS, *(f"{name}_sum" for name in HISTOGRAMS))


def layout_position(histogram: str) -> int:
    """Where a histogram's layout is in ``layouts``: PostgreSQL's arrays count from 1."""
    return HISTOGRAMS.index(histogram) + 1
