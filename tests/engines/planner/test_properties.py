"""What holds for every model, card and set of flags."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.planner.estimate import Past, estimate
from engines.planner.flags import Card, Flags, settle
from engines.planner.reading import read_model
from engines.planner.reverse import carries, ways
from engines.planner.rules import GIB, rules_for
from engines.planner.sizing import size
from tests.engines.planner.support import DATA, H200, planned, sample

NAMES = sorted(path.stem for path in (DATA / "configs").glob("*.json"))
VERSIONS = ["0.8.5", "0.10.2", "0.16.0", "0.20.0", "0.25.1", "0.32.0", "0.33.0"]
models = st.sampled_from(NAMES)
versions = st.sampled_from(VERSIONS)
lengths = st.integers(1, 131072)
memories = st.integers(0, 200 * GIB)
quick = settings(max_examples=60, deadline=None)


def pool(name: str, version: str, memory: int, **flags):
    model, rules = sample(name), rules_for(version)
    sizing = size(model, settle(Flags(**flags), model, H200, rules), H200, rules)
    return sizing.pool([memory] * len(sizing.stages))


@quick
@given(models, versions, memories, memories)
def test_more_memory_never_means_fewer_pages(name, version, one, other):
    low, high = sorted((one, other))
    assert pool(name, version, low).blocks <= pool(name, version, high).blocks


@quick
@given(models, versions, memories, lengths, lengths)
def test_shorter_requests_are_never_fewer_at_once(name, version, memory, one, other):
    short, long = sorted((one, other))
    found = pool(name, version, memory)
    assert found.concurrency(short) >= found.concurrency(long)


@quick
@given(models, versions, memories, lengths)
def test_the_longest_length_starts_and_the_next_does_not(name, version, memory, limit):
    found = pool(name, version, memory)
    longest = found.longest(limit)
    assert longest <= limit
    assert longest == 0 or found.fits(longest)
    assert longest == limit or not found.fits(longest + 1)


@quick
@given(models, versions, st.integers(1 * GIB, 100 * GIB))
def test_two_cards_never_more_than_double_the_pages(name, version, memory):
    one, two = pool(name, version, memory), pool(name, version, memory, tensor_parallel_size=2)
    if sample(name).has_state:
        # a state may be split in a way that lets a page hold other tokens
        assert two.tokens(8192) <= 2 * (one.tokens(8192) + two.layout.smallest_block * 200)
    else:
        assert two.blocks <= 2 * one.blocks + 1


@quick
@given(models, versions, memories)
def test_an_eight_bit_cache_holds_at_least_as_many_tokens(name, version, memory):
    plain, eight = pool(name, version, memory), pool(name, version, memory, kv_cache_dtype="fp8")
    assert eight.tokens(4096) >= plain.tokens(4096) or sample(name).has_state


@quick
@given(models, st.floats(0.3, 0.94), st.floats(0.001, 0.05))
def test_a_larger_share_never_means_fewer_pages(name, share, more):
    low = planned(name, gpu_memory_utilization=share, max_model_len=4096)
    high = planned(name, gpu_memory_utilization=share + more, max_model_len=4096)
    assert low.pool.blocks <= high.pool.blocks
    assert low.requested - sum(term.bytes for term in low.terms) == low.available


@quick
@given(models, st.integers(256, 32768), st.integers(256, 32768))
def test_a_wider_batch_never_leaves_more_memory(name, one, other):
    narrow, wide = sorted((one, other))
    assert (
        planned(name, max_num_batched_tokens=narrow, max_num_seqs=64).available
        >= planned(name, max_num_batched_tokens=wide, max_num_seqs=64).available
    )


@pytest.mark.parametrize("name", NAMES)
def test_stages_of_a_pipeline_run_every_layer_once(name):
    found = planned(name, pipeline_parallel_size=3, max_model_len=4096)
    every = [layer for share in found.sizing.stage_layers for layer in share]
    assert sorted(every) == list(range(len(found.model.layers)))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200), st.integers(512, 32768))
def test_every_way_back_carries_what_was_asked(requests, length):
    for answer in ways(sample("Qwen3-8B"), Flags(), H200, "0.25.1", requests, length):
        assert carries(answer.found, requests, length)
        assert answer.utilization <= 0.95


def test_a_mix_is_reckoned_by_pages_not_by_numbers():
    found = planned(max_model_len=32768).pool
    mixed = found.at_once([(1024, 0.5), (31744, 0.5)])
    assert mixed == pytest.approx(found.usable_blocks / 1024)
    assert found.at_once([(32768, 1.0)]) == pytest.approx(found.usable_blocks / 2048)


def test_what_an_earlier_start_found_corrects_the_next():
    model, flags = sample("Llama-3.1-8B"), Flags(max_model_len=8192, enforce_eager=True)
    before = estimate(model, flags, H200, "0.25.1")
    past = Past(model, flags, H200, "0.25.1", before.available - GIB // 2)
    after = estimate(sample("Qwen3-8B"), flags, H200, "0.25.1", past=[past])
    blind = estimate(sample("Qwen3-8B"), flags, H200, "0.25.1")
    assert after.available == blind.available - GIB // 2
    assert after.corrected_by == 1
    assert after.high - after.low < blind.high - blind.low
    # a start on another kind of card says nothing here
    other = replace(past, card=Card("NVIDIA A100-SXM4-80GB", 80 * GIB))
    assert estimate(sample("Qwen3-8B"), flags, H200, "0.25.1", past=[other]).available == blind.available


def test_a_card_too_full_is_told_before_the_start():
    card = replace(H200, free_bytes=100 * GIB)
    problem = planned(card=card).problem
    assert problem is not None and problem.code == "free_too_little"
    assert "0.71 or less" in problem.text()


def test_a_length_over_the_models_own_is_refused():
    problem = planned(max_model_len=65536).problem
    assert problem is not None and problem.code == "longer_than_model"


def test_weight_files_far_from_the_config_are_said():
    model = sample("Qwen3-8B")
    half = estimate(model, Flags(), H200, "0.25.1", files=8 * GIB)
    assert "files_differ" in [note.code for note in half.notes]
    whole = estimate(model, Flags(), H200, "0.25.1", files=16_381_516_776)
    assert whole.notes == ()


def test_states_at_every_page_make_pages_of_whole_chunks():
    config = {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "hidden_size": 4096,
        "num_hidden_layers": 4,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hybrid_override_pattern": "M*M-",
        "chunk_size": 128,
    }
    model = read_model(config)
    plain = estimate(model, Flags(max_model_len=8192, enable_prefix_caching=False), H200, "0.33.0")
    cached = estimate(model, Flags(max_model_len=8192, enable_prefix_caching=True), H200, "0.33.0")
    assert cached.settled.state_mode == "all"
    assert cached.sizing.block % 128 == 0
    assert cached.sizing.block >= plain.sizing.block
    # a state for each page of a request, not one for all of it
    assert cached.pool.request_blocks(8192) > plain.pool.request_blocks(8192)
