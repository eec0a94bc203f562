from __future__ import annotations

from pathlib import Path

import pytest

from engines.vllm import log
from engines.vllm.failures import explain

LOGS = Path(__file__).parents[2] / "data" / "logs"


def read(name: str) -> dict:
    return log.read({}, (LOGS / name).read_text())


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("swap_space.log", "unrecognized_args", "--swap-space 8"),
        ("disable_log_requests.log", "unrecognized_args", "--disable-log-requests"),
        ("bad_path.log", "model_path_missing", "/models/does-not-exist"),
        ("port_in_use.log", "port_in_use", "port"),
        ("gmu_too_low.log", "no_cache_memory", "KV cache"),
        ("len_too_long_for_kv.log", "kv_too_small", "4.5 GiB"),
        ("len_over_model_max.log", "model_len_too_large", "65536"),
    ],
)
def test_a_failed_start_is_explained_by_its_first_cause(name, code, words):
    found, sentence, remedy = explain(log.cause(read(name)), 1)
    assert found == code
    assert words in sentence
    assert remedy


def test_a_healthy_start_has_its_figures_and_no_cause():
    facts = read("start_h200_graphs.log")
    assert facts["weights_gib"] == 15.27
    assert facts["kv_gib"] == 109.04
    assert facts["kv_tokens"] == 794016
    assert facts["max_concurrency"] == 24.23
    assert facts["compile_s"] == 30.92
    assert facts["graphs_gib"] == 0.23
    assert facts["version"] == "0.25.1"
    assert log.cause(facts).id == "unknown"


def test_a_cpu_build_is_read_as_well():
    facts = read("start_cpu.log")
    assert facts["version"] == "0.32.0"
    assert facts["kv_tokens"] == 2097152
    assert facts["listening"] is True
    assert log.progress(facts) == 1.0


@pytest.mark.parametrize("size", [1, 7, 100, 4096])
def test_pieces_of_any_size_tell_the_same_and_progress_never_falls(size):
    data = (LOGS / "start_h200_graphs.log").read_bytes()
    facts: dict = {}
    offset, reached, last = 0, size, 0.0
    while offset < len(data):
        whole = log.whole_lines(data[offset:reached], last=reached >= len(data), limit=1 << 20)
        log.read(facts, data[offset : offset + whole].decode())
        offset += whole
        reached += size
        assert log.progress(facts) >= last
        last = log.progress(facts)
    assert facts == read("start_h200_graphs.log")


def test_a_kill_from_outside_is_said_so():
    code, sentence, remedy = explain(log.Cause("unknown", "", {}), 137)
    assert code == "killed"
    assert "137" in sentence
    assert "memory" in remedy


def test_import_errors_of_a_start_that_went_on_are_no_cause():
    facts = log.read({}, "Traceback (most recent call last):\n  File x\nImportError: no deep_gemm\n")
    assert log.cause(facts).id == "exception"
    log.read(facts, "INFO 11-30 10:00:00 [core.py:1] Resolved architecture: Qwen3ForCausalLM\n")
    assert log.cause(facts).id == "unknown"
