from __future__ import annotations

from engines.metrics.parse import parse_page
from tests.engines.metrics import reference
from tests.support.simulated_fleet import SimulatedEngine


def test_its_page_has_the_real_pages_series():
    real = parse_page(reference.sample("vllm-0.25.1-h200.txt"))
    page = parse_page(SimulatedEngine(1, started=1_000_000.0).page(1_000_060.0))
    assert page.values.keys() == real.values.keys()
    assert {name: one.bounds for name, one in page.histograms.items()} == {
        name: one.bounds for name, one in real.histograms.items()
    }
    assert page.pool_tokens == real.pool_tokens
    # after a minute it has counted what the sample has
    assert page.values["prompt_tokens"] == real.values["prompt_tokens"]
    assert page.histograms["ttft"].counts == real.histograms["ttft"].counts


def test_its_counters_move_and_its_histograms_stay_cumulative():
    engine = SimulatedEngine(1, started=1_000_000.0)
    earlier, later = parse_page(engine.page(1_000_100.0)), parse_page(engine.page(1_000_107.0))
    assert later.values["generation_tokens"] > earlier.values["generation_tokens"]
    assert later.values["kv_usage_ratio"] != earlier.values["kv_usage_ratio"]
    for name, one in later.histograms.items():
        assert list(one.counts) == sorted(one.counts)
        assert all(a <= b for a, b in zip(earlier.histograms[name].counts, one.counts, strict=True))
