"""Canonical metric names, and what each vLLM version calls them. Pure.

``metrics_map.json`` has, for each canonical name, the names on the page with the engine generation
(V0, V1) and the first and last version that has them. ``METRICS`` says how series of one name combine
when a page has several: data parallel ranks (``engine`` label), models, API server processes (``pid``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

_MAP_FILE = Path(__file__).with_name("metrics_map.json")


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


class Combine(StrEnum):
    """How the series of one name become one value."""

    SUM = "sum"
    #: the pools of data parallel ranks have one size, so the mean of their ratios is the whole's ratio
    MEAN = "mean"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Metric:
    """One canonical metric. ``source`` is its entry in the map when the name differs.

    ``label`` selects series: only those whose label of that name has that value count.
    ``lowest`` is the least value that means something (the old hit rate is -1 when it is off).
    """

    name: str
    kind: Kind
    combine: Combine = Combine.SUM
    source: str = ""
    label: tuple[str, str] | None = None
    lowest: float | None = None

    @property
    def entry(self) -> str:
        return self.source or self.name


_GAUGES = (
    Metric("kv_usage_ratio", Kind.GAUGE, Combine.MEAN),
    Metric("requests_running", Kind.GAUGE),
    Metric("requests_waiting", Kind.GAUGE),
    Metric("waiting_capacity", Kind.GAUGE, source="requests_waiting_by_reason", label=("reason", "capacity")),
    Metric("waiting_deferred", Kind.GAUGE, source="requests_waiting_by_reason", label=("reason", "deferred")),
    Metric("requests_swapped", Kind.GAUGE),
    Metric("cpu_kv_usage_ratio", Kind.GAUGE, Combine.MEAN),
    Metric("prefix_cache_hit_rate_gauge", Kind.GAUGE, Combine.MEAN, lowest=0),
    Metric("awake_ratio", Kind.GAUGE, Combine.MEAN, source="sleep_state", label=("sleep_state", "awake")),
    Metric("avg_prompt_throughput", Kind.GAUGE),
    Metric("avg_generation_throughput", Kind.GAUGE),
    # no vLLM metric: the process's own start, by which a restart is known even when counters grew past
    Metric("process_start", Kind.GAUGE, Combine.MAX),
)
_COUNTERS = (
    *(
        Metric(name, Kind.COUNTER)
        for name in (
            "prompt_tokens",
            "generation_tokens",
            "prompt_tokens_cached",
            "prefix_cache_queries",
            "prefix_cache_hits",
            "external_prefix_cache_queries",
            "external_prefix_cache_hits",
            "preemptions",
            "request_success",
            "spec_accepted",
            "spec_draft",
            "mm_cache_queries",
            "mm_cache_hits",
            "admission_rejections",
            "est_flops",
        )
    ),
    *(
        Metric(
            f"finished_{reason}", Kind.COUNTER, source="request_success", label=("finished_reason", reason)
        )
        for reason in ("stop", "length", "abort", "error")
    ),
)
_HISTOGRAMS = tuple(
    Metric(name, Kind.HISTOGRAM)
    for name in (
        "ttft",
        "inter_token_latency",
        "request_tpot_mean",
        "e2e_latency",
        "queue_time",
        "prefill_time",
        "decode_time",
        "inference_time",
        "prompt_len_hist",
        "gen_len_hist",
        "iteration_tokens",
        "kv_block_lifetime",
    )
)

#: every canonical metric that is read from a page, by name
METRICS: dict[str, Metric] = {metric.name: metric for metric in (*_GAUGES, *_COUNTERS, *_HISTOGRAMS)}

#: the canonical name of the pool's configuration, read from labels
CACHE_CONFIG = "cache_config"

_OWN_NAMES = {"process_start": ("process_start_time_seconds",)}


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    engine: str
    first: tuple[int, ...]
    last: tuple[int, ...]


def version_key(version: str) -> tuple[int, ...]:
    """A vLLM version as numbers that compare: "0.6.3.post1" -> (0, 6, 3, 1), "0.25.1+cu130" -> (0, 25, 1)."""
    return tuple(int(number) for number in re.findall(r"\d+", version.split("+")[0]))


@lru_cache(maxsize=1)
def _entries() -> dict[str, list[_Entry]]:
    data = json.loads(_MAP_FILE.read_text())["map"]
    return {
        canonical: [
            _Entry(row["name"], row["engine"], version_key(row["first"]), version_key(row["last"]))
            for row in rows
        ]
        for canonical, rows in data.items()
    }


@lru_cache(maxsize=256)
def page_names(metric: str) -> tuple[str, ...]:
    """The names a page may use for a canonical metric, newest first: the first one present counts.

    Two can be on one page: 0.9.2 to 0.11.2 show the cache's usage under the old and the new name.
    """
    entry = METRICS[metric].entry if metric in METRICS else metric
    if entry in _OWN_NAMES:
        return _OWN_NAMES[entry]
    newest_first = sorted(_entries()[entry], key=lambda row: (row.last, row.first), reverse=True)
    return tuple(dict.fromkeys(row.name for row in newest_first))


def names_at(version: str) -> dict[str, tuple[str, ...]]:
    """What one vLLM version calls each canonical metric, newest name first; absent when it has none."""
    key = version_key(version)
    result = {}
    for canonical in (*METRICS, CACHE_CONFIG):
        entry = METRICS[canonical].entry if canonical in METRICS else canonical
        if entry in _OWN_NAMES:
            result[canonical] = _OWN_NAMES[entry]
            continue
        present = {row.name for row in _entries()[entry] if row.first <= key <= row.last}
        names = tuple(name for name in page_names(canonical) if name in present)
        if names:
            result[canonical] = names
    return result
