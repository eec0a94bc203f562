"""A profile against one installed vLLM, the host's cards and the model's shape."""

from __future__ import annotations

import pytest

from engines.vllm.notes import Severity
from engines.vllm.releases import release
from engines.vllm.shapes import shape_by_name
from engines.vllm.spec import ServeSpec
from engines.vllm.target import Card, Shape, Target, judge

H200 = tuple(Card(str(index), "NVIDIA H200", f"GPU-{index}aaaa", 143771.0) for index in range(2))


def verdict(version="0.33.0", *, model="m/m", gpus="", cards=None, shape=None, memory=None, **values):
    spec = ServeSpec(model, values=values, gpus=gpus)
    return judge(spec, Target("h", release(version), cards, memory, shape or Shape()))


def only(found):
    (note,) = found.notes
    return note


def sets(note):
    return [dict(mend.sets) for mend in note.mends]


def test_a_profile_that_fits_says_nothing():
    found = verdict(cards=H200, shape=Shape(32, 8), tensor_parallel_size=2, gpu_memory_utilization=0.9)
    assert (found.notes, found.starts) == ((), True)


def test_more_gpus_than_the_host_has():
    note = only(verdict(cards=H200, tensor_parallel_size=4))
    assert (note.code, note.severity) == ("more_gpus_than_host", Severity.ERROR)
    assert sets(note) == [{"tensor_parallel_size": "2"}]
    assert "4 GPUs" in note.text()
    # nobody has looked, or Ray may use other hosts
    assert verdict(tensor_parallel_size=4).starts
    assert verdict(cards=H200, tensor_parallel_size=4, distributed_executor_backend="ray").starts


def test_a_gpu_that_is_not_there():
    note = only(verdict(cards=H200, gpus="0,5", tensor_parallel_size=2))
    assert (note.code, note.params["missing"]) == ("gpu_not_there", "5")
    assert verdict(cards=H200, gpus="GPU-0aaaa", tensor_parallel_size=1).starts


def test_heads_that_do_not_divide():
    note = only(verdict(cards=H200 * 4, shape=Shape(heads=40), tensor_parallel_size=6))
    assert note.code == "heads_not_divisible"
    assert sets(note) == [{"tensor_parallel_size": "5"}, {"tensor_parallel_size": "8"}]
    assert verdict(cards=H200 * 4, tensor_parallel_size=6).starts  # unknown heads


@pytest.mark.parametrize(
    ("card", "kind", "severity"),
    [
        ("NVIDIA H200", "fp8", None),
        ("NVIDIA L40S", "fp8_e4m3", None),
        ("NVIDIA A100-SXM4-80GB", "fp8", Severity.WARNING),
        ("NVIDIA GeForce RTX 3090", "fp8", Severity.WARNING),
        ("Tesla V100-SXM2-32GB", "fp8", Severity.ERROR),
        ("Tesla T4", "fp8", Severity.ERROR),
        ("NVIDIA H200", "nvfp4", Severity.ERROR),
        ("NVIDIA B200", "nvfp4", None),
        ("Something new", "fp8", None),
        ("Tesla T4", "auto", None),
    ],
)
def test_a_cache_type_that_the_card_cannot_keep(card, kind, severity):
    found = verdict(cards=(Card("0", card),), kv_cache_dtype=kind)
    assert [note.severity for note in found.notes] == ([severity] if severity else [])
    if severity:
        assert {"kv_cache_dtype": ""} in sets(found.notes[0])
        assert card in found.notes[0].text()


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA H100 80GB HBM3", 9.0),
        ("NVIDIA H20", 9.0),
        ("NVIDIA GH200 480GB", 9.0),
        ("NVIDIA A10G", 8.6),
        ("NVIDIA A100 80GB PCIe", 8.0),
        ("NVIDIA RTX A6000", 8.6),
        ("NVIDIA RTX 6000 Ada Generation", 8.9),
        ("NVIDIA L4", 8.9),
        ("NVIDIA GB200", 10.0),
        ("NVIDIA B300 SXM6 AC", 10.3),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 12.0),
        ("NVIDIA GeForce RTX 2080 Ti", 7.5),
        ("AMD Instinct MI300X", None),
    ],
)
def test_a_card_is_known_by_its_name(name, capability):
    assert Card("0", name).capability == capability


def test_pages_that_an_attention_kind_does_not_take():
    mla = only(verdict(shape=Shape(attention="mla"), block_size=16))
    assert (mla.code, mla.severity) == ("block_size_mla", Severity.WARNING)
    assert sets(mla) == [{"block_size": ""}, {"block_size": "64"}]
    assert verdict(shape=Shape(attention="mla"), block_size=64).notes == ()
    assert only(verdict(shape=Shape(attention="hybrid"), block_size=16)).code == "block_size_hybrid"
    assert only(verdict(block_size=24)).code == "block_size_odd"
    assert verdict(block_size=16).notes == ()


def test_pages_that_a_cpu_does_not_take():
    note = only(verdict("0.32.0+cpu", block_size=16))
    assert (note.code, note.severity) == ("block_size_cpu", Severity.ERROR)
    assert sets(note) == [{"block_size": ""}, {"block_size": "32"}]
    assert verdict("0.32.0+cpu", block_size=64).notes == ()


def test_whole_prompts_in_the_old_engine():
    note = only(verdict("0.7.3", max_model_len=16384, max_num_batched_tokens=8192))
    assert note.code == "batch_below_length"
    assert sets(note) == [{"enable_chunked_prefill": "on"}, {"max_num_batched_tokens": "16384"}]
    assert verdict("0.8.0", max_model_len=16384, max_num_batched_tokens=8192).notes == ()
    # beyond 32,768 it chunks by itself
    assert verdict("0.7.3", max_model_len=65536, max_num_batched_tokens=8192).notes == ()


def test_swap_space_where_it_only_does_harm():
    idle = only(verdict("0.10.2", swap_space=8.0, memory=256 * 2**30))
    assert (idle.code, idle.severity) == ("swap_idle", Severity.WARNING)
    note = only(verdict("0.10.2", swap_space=64.0, tensor_parallel_size=2, memory=128 * 2**30))
    assert (note.code, note.severity) == ("swap_too_large", Severity.ERROR)
    assert "70%" in note.text()
    assert verdict("0.6.3.post1", swap_space=8.0).notes == ()


def test_a_model_that_the_release_cannot_load():
    assert only(verdict("0.8.3", model="Qwen/Qwen3-8B")).code == "model_too_new"
    assert verdict("0.8.4", model="Qwen/Qwen3-8B").notes == ()
    assert verdict("0.8.3", model="Qwen/Qwen2.5-7B").notes == ()


def test_a_release_that_is_not_known_says_which_one_stands_in():
    note = only(verdict("0.40.0"))
    assert note.code == "release_unknown"
    assert "0.40.0" in note.text()
    assert "0.33.0" in note.text()


def test_what_forbids_a_start_comes_first():
    found = verdict("0.33.0", cards=H200, swap_space=8.0, tensor_parallel_size=4)
    assert [note.severity for note in found.notes] == [Severity.ERROR, Severity.WARNING]
    assert not found.starts


def test_a_cpu_build_needs_no_cards():
    assert verdict("0.32.0+cpu", cards=(), tensor_parallel_size=1, kv_cache_dtype="fp8").starts


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("Qwen/Qwen3-8B", Shape(32, 8)),
        ("Qwen/Qwen3-8B-AWQ", Shape(32, 8)),
        ("/data/models/Qwen3-14B/", Shape(40, 8)),
        ("deepseek-ai/DeepSeek-V3.1", Shape(128, 128, "mla")),
        ("deepseek-ai/DeepSeek-R1-0528", Shape(128, 128, "mla")),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", Shape()),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", Shape()),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", Shape(64, 8)),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", Shape(16, 16, "mla")),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", Shape(16, 2, "hybrid")),
        ("meta-llama/Llama-3.3-70B-Instruct", Shape(64, 8)),
        ("microsoft/Phi-4-mini-instruct", Shape()),
        ("microsoft/phi-4", Shape(40, 10)),
        ("acme/own-8b", Shape()),
    ],
)
def test_common_models_are_known_by_name(model, shape):
    assert shape_by_name(model) == shape
