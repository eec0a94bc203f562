"""Real starts on H200s: pages exact from the memory given, and memory near from card, config and flags."""

from __future__ import annotations

import json

import pytest

from bench import planner as bench
from engines.planner.flags import Flags, settle
from engines.planner.memory import activation, graphs, outside
from engines.planner.reading import read_model
from engines.planner.rules import GIB, rules_for
from engines.planner.weights import weights_on_card
from tests.engines.planner.support import DATA, H200

CASES = bench.cases(DATA / "starts.jsonl", None)
MEASURED = [json.loads(line) for line in (DATA / "measured.jsonl").read_text().splitlines()]
CUT = json.loads((DATA / "cut_configs.json").read_text())
#: a model whose compiled peak is not understood: its compiler saves where others do not
ODD = {"dsv3"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pages_tokens_and_concurrency_are_vllms_own_when_the_memory_is_given(case):
    assert bench.given_memory(case)[0] == 0


@pytest.mark.parametrize("case", [one for one in CASES if one.row["ok"]], ids=lambda case: case.name)
def test_what_vllm_filled_in_is_filled_in(case):
    found = case.found()
    row = case.row
    assert found.sizing.block == row["block_size"]
    assert found.settled.batched_tokens == row["max_num_batched_tokens"]
    assert found.settled.sequences == row["max_num_seqs"]
    assert found.settled.prefix_caching == row["enable_prefix_caching"]
    assert found.settled.utilization == row["gpu_memory_utilization"]
    pages = [(cache.page, cache.block) for group in found.sizing.layout.groups for cache in group.caches[:1]]
    assert pages == [(page, block) for _, _, block, page in row["groups"]]


@pytest.mark.parametrize("case", [one for one in CASES if one.row["ok"]], ids=lambda case: case.name)
def test_the_pool_is_near_before_anything_was_started(case):
    error = bench.error_of(case, case.found())
    assert error is None or error < 0.015


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_start_of_another_model_makes_it_nearer(case):
    error = bench.calibrated(case, CASES)
    assert error is None or error < 0.005


@pytest.mark.parametrize(
    "case", [one for one in CASES if one.row.get("model_memory_usage")], ids=lambda case: case.name
)
def test_weights_come_from_the_config_alone(case):
    real = case.row["model_memory_usage"]
    assert abs(case.found().weights.total - real) / real < 0.01


@pytest.mark.parametrize("case", [one for one in CASES if not one.row["ok"]], ids=lambda case: case.name)
def test_a_refused_start_is_refused_with_vllms_longest_length(case):
    found = case.found()
    theirs, mine = bench.refused_length(case)
    assert found.problem is not None
    assert theirs == mine
    assert found.problem.code == ("length_too_long" if theirs else "no_memory")


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: "{model}-{batched}-{seqs}-{eager}".format(**row))
def test_the_peak_of_the_profile_run_is_what_was_measured(row):
    model, rules = read_model(CUT[row["model"]]), rules_for("0.25.1")
    flags = Flags(
        max_model_len=8192,
        max_num_batched_tokens=row["batched"],
        max_num_seqs=row["seqs"],
        enforce_eager=row["eager"],
    )
    settled = settle(flags, model, H200, rules)
    peak = activation(model, settled, H200, rules, 16).bytes
    allowed = 0.85 if row["model"] in ODD else 0.05
    assert abs(peak - row["activation"]) < allowed * GIB
    layers = frozenset(range(len(model.layers)))
    weights = weights_on_card(model, flags, H200, rules, layers, first=True, last=True)
    assert abs(weights.total - row["weights"]) < 0.015 * row["weights"]
    if "graphs" in row:
        assert abs(graphs(model, settled, rules) - row["graphs"]) < 0.06 * GIB
        assert abs(outside(model, settled, rules) - row["outside"]) < 0.03 * GIB
