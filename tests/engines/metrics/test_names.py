from __future__ import annotations

import pytest

from engines.metrics.names import METRICS, names_at, page_names, version_key
from tests.engines.metrics import reference


@pytest.mark.parametrize("version", reference.versions())
def test_a_versions_names_are_on_its_page(version):
    shown = {
        row["name"]
        for engine in reference.generations(version)
        for row in reference.series_of(version, engine)
    }
    for metric, names in names_at(version).items():
        assert set(names) <= shown, f"{metric}: {set(names) - shown} not in vLLM {version}"


def test_every_name_that_a_version_shows_for_a_metric_is_known():
    """The other way round: what the map does not list for a version, its page does not have either."""
    for version in reference.versions():
        shown = {
            row["name"]
            for engine in reference.generations(version)
            for row in reference.series_of(version, engine)
        }
        for metric in METRICS:
            assert set(page_names(metric)) & shown == set(names_at(version).get(metric, ()))


def test_renamed_metrics_are_newest_first():
    assert page_names("kv_usage_ratio") == ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
    assert page_names("inter_token_latency") == (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
    )
    assert names_at("0.8.5")["kv_usage_ratio"] == ("vllm:gpu_cache_usage_perc",)
    assert names_at("0.32.0+cpu")["kv_usage_ratio"] == ("vllm:kv_cache_usage_perc",)


def test_versions_compare_by_number():
    assert version_key("0.6.3.post1") < version_key("0.6.6.post1") < version_key("0.10.2")
    assert version_key("0.25.1+cu130") == version_key("0.25.1")
