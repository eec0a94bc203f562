from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from engines.metrics.parse import MalformedPage, PageReader, parse_page
from tests.engines.metrics import reference

SAMPLES = ["vllm-0.25.1-h200.txt", "vllm-0.32.0-cpu.txt"]


def assert_equals_reference(text: str) -> None:
    values, histograms = reference.expected(text)
    page = parse_page(text)
    assert page.values == pytest.approx(values, rel=1e-12)
    assert {
        name: dict(zip(found.bounds, found.counts, strict=True)) for name, found in page.histograms.items()
    } == histograms


@pytest.mark.parametrize("name", SAMPLES)
def test_it_reads_a_real_page_like_the_reference(name):
    text = reference.sample(name)
    assert_equals_reference(text)
    assert len(parse_page(text).values) >= 20


def test_it_reads_the_values_of_an_engine_under_load():
    page = parse_page(reference.sample("vllm-0.25.1-h200.txt"))
    assert page.values["requests_running"] == 20
    assert page.values["kv_usage_ratio"] == pytest.approx(0.015314861460957174)
    assert page.values["finished_length"] == 61
    assert page.histograms["ttft"].counts[-1] == 81
    assert page.histograms["ttft"].sum == pytest.approx(19.634531259536743)
    assert page.cache_config["block_size"] == "16"
    assert page.pool_tokens == 794_016
    assert page.ranks == 1
    assert page.models == ("qwen3-8b",)


@pytest.mark.parametrize(
    ("version", "engine"),
    [(version, engine) for version in reference.versions() for engine in reference.generations(version)],
)
def test_it_reads_every_version_like_the_reference(version, engine):
    text = reference.page_of(version, engine, ranks=2)
    assert_equals_reference(text)
    page = parse_page(text)
    for name in ("kv_usage_ratio", "requests_running", "requests_waiting", "prompt_tokens"):
        assert name in page.values, f"{name} is missing for vLLM {version} {engine}"
    for name in ("ttft", "inter_token_latency", "e2e_latency"):
        assert name in page.histograms, f"{name} is missing for vLLM {version} {engine}"


def test_a_reader_follows_changed_numbers():
    reader = PageReader()
    text = reference.sample("vllm-0.25.1-h200.txt")
    reader.read(text)
    later = text.replace('qwen3-8b"} 20.0', 'qwen3-8b"} 33.0')
    assert reader.read(later) == parse_page(later)
    assert reader.read(later).values["requests_running"] == 33


def test_a_reader_learns_a_page_with_other_series():
    reader = PageReader()
    reader.read(reference.sample("vllm-0.25.1-h200.txt"))
    other = reference.sample("vllm-0.32.0-cpu.txt")
    assert reader.read(other) == parse_page(other)
    renamed = other.replace('model_name="', 'model_name="new-')
    assert reader.read(renamed) == parse_page(renamed)


def test_unread_histograms_change_nothing_else():
    text = reference.sample("vllm-0.25.1-h200.txt")
    page = parse_page(text, histograms=False)
    assert page.values == parse_page(text).values
    assert page.histograms == {}


def test_ranks_and_models_combine():
    page = parse_page(
        'vllm:num_requests_running{engine="0",model_name="a"} 3\n'
        'vllm:num_requests_running{engine="1",model_name="a"} 4\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.2\n'
        'vllm:kv_cache_usage_perc{engine="1",model_name="a"} 0.6\n'
        'vllm:prompt_tokens_total{engine="0",model_name="a"} 10\n'
        'vllm:prompt_tokens_total{engine="1",model_name="a"} 32\n'
    )
    assert page.values["requests_running"] == 7
    assert page.values["kv_usage_ratio"] == pytest.approx(0.4)
    assert page.values["prompt_tokens"] == 42
    assert page.ranks == 2


def test_the_newest_name_counts_where_a_page_has_two():
    page = parse_page("vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.25\n")
    assert page.values["kv_usage_ratio"] == 0.25


def test_what_is_missing_is_absent():
    page = parse_page('vllm:num_requests_running{engine="0"} 0.0\n')
    assert page.values == {"requests_running": 0.0}
    assert page.histograms == {}
    assert page.pool_tokens is None


def test_nan_is_no_value():
    page = parse_page(
        'vllm:kv_cache_usage_perc{engine="0"} NaN\nvllm:num_requests_running{engine="0"} +Inf\n'
        'vllm:num_requests_waiting{engine="0"} NaN\nvllm:num_requests_waiting{engine="1"} 2\n'
    )
    assert page.values == {"requests_waiting": 2}


def test_a_hit_rate_of_minus_one_is_no_value():
    page = parse_page("vllm:gpu_prefix_cache_hit_rate -1\nvllm:num_requests_running 1\n")
    assert "prefix_cache_hit_rate_gauge" not in page.values


def test_a_pool_of_ranks_is_counted_once():
    text = "".join(
        f'vllm:cache_config_info{{block_size="16",engine="{rank}",num_gpu_blocks="200"}} 1.0\n'
        for rank in (0, 1)
    )
    assert parse_page(text).pool_tokens == 3200  # num_gpu_blocks is the sum already
    text = "".join(
        f'vllm:cache_config_info{{engine="{rank}",kv_cache_size_tokens="1600"}} 1.0\n' for rank in (0, 1)
    )
    assert parse_page(text).pool_tokens == 3200
    unknown = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\n'
    assert parse_page(unknown).pool_tokens is None


def test_a_timestamp_is_not_the_value():
    reader = PageReader()
    for value in (3, 5):
        page = reader.read(f'vllm:num_requests_running{{engine="0"}} {value} 1796045922000\n')
        assert page.values["requests_running"] == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("<html><body>Bad gateway</body></html>\n", "not a page of metrics"),
        ('{"detail": "Not Found"}\n', "not a page of metrics"),
        ('vllm:num_requests_running{engine="0"} 2', "cut off"),
        ('vllm:num_requests_running{engine="0"} two\n', "no number"),
        ('vllm:num_requests_running{engine="0\n', "no number"),
        ("vllm:num_requests_running 1\nvllm:num_requests_waiting 1 2 3\n", "no number"),
        ('vllm:time_to_first_token_seconds_bucket{engine="0"} 1\n', "without its bound"),
        ('vllm:time_to_first_token_seconds_bucket{le="1"} 1\n', "no +Inf"),
    ],
)
def test_a_malformed_page_is_named(text, words):
    with pytest.raises(MalformedPage, match=words.replace("+", r"\+")):
        parse_page(text)


label_text = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\x85\u2028\u2029"), max_size=12
)
number = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(
    series=st.dictionaries(st.tuples(label_text, st.integers(0, 3)), st.tuples(number, number), max_size=5),
    seen=st.lists(st.floats(0, 100), max_size=20),
)
def test_any_page_reads_like_the_reference(series, seen):
    registry = CollectorRegistry()
    labels = ["model_name", "engine"]
    running = Gauge("vllm:num_requests_running", "Run.", labels, registry=registry)
    usage = Gauge("vllm:kv_cache_usage_perc", "Use.", labels, registry=registry)
    tokens = Counter("vllm:prompt_tokens", "Tokens.", labels, registry=registry)
    first = Histogram(
        "vllm:time_to_first_token_seconds", "First.", labels, registry=registry, buckets=(0.1, 1, 10)
    )
    for (model, engine), (one, two) in series.items():
        values = {"model_name": model, "engine": str(engine)}
        running.labels(**values).set(one)
        usage.labels(**values).set(two)
        tokens.labels(**values).inc(abs(one) if math.isfinite(one) else 1)
        for value in seen:
            first.labels(**values).observe(value)
    text = generate_latest(registry).decode()
    assert_equals_reference(text)
    page = parse_page(text)
    assert page.ranks == len({engine for _, engine in series})
    assert set(page.models) == {model for model, _ in series if model}


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_words(text):
    try:
        parse_page(text)
    except MalformedPage as error:
        assert str(error)


def test_what_could_not_be_stored_is_no_value():
    page = parse_page(
        'vllm:num_requests_running{engine="0"} 1e300\nvllm:num_requests_waiting{engine="0"} 3\n'
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="1"} 1e30\n'
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 1e30\n'
        'vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf"} 2\n'
        'vllm:inter_token_latency_seconds_sum{engine="0"} 1e300\n'
    )
    assert page.values == {"requests_waiting": 3}
    assert [(one.counts, one.sum) for one in page.histograms.values()] == [((2.0,), None)]
