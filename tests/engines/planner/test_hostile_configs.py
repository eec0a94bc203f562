"""A config.json nobody vouches for gets a sentence, never a guess and never an exception of Python's."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.planner.estimate import estimate
from engines.planner.flags import Flags
from engines.planner.reading import read_model
from engines.vllm.notes import Unreadable
from tests.engines.planner.support import H200, llama


def refusal(source) -> str:
    with pytest.raises(Unreadable) as caught:
        read_model(source)
    return caught.value.note.text()


def cycle() -> dict:
    found = llama()
    found["text_config"] = found
    return found


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b"[]", "one object"),
        (b"null", "one object"),
        (b"{}", "empty"),
        (b'{"a": ' * 5000 + b"1" + b"}" * 5000, "nests too deeply"),
        (b" " * 10_000_000, "10.0 MB"),
        (json.dumps(llama(filler="x" * 10_000_000)), "MB"),
        (cycle(), "nests too deeply"),
        (llama(hidden_size=None), "hidden_size” is missing"),
        (llama(num_attention_heads=0), "num_attention_heads” is 0"),
        (llama(num_attention_heads="32"), "num_attention_heads” is 32; it must be a whole number"),
        (llama(num_hidden_layers=True), "num_hidden_layers” is true"),
        (llama(num_hidden_layers=-1), "from 1 to"),
        (llama(num_hidden_layers=10**30), "from 1 to"),
        (llama(num_hidden_layers=1.5), "whole number"),
        (llama(hidden_size=[4096]), "whole number"),
        (llama(num_key_value_heads=64), "no model is built so"),
        (llama(layer_types=["full_attention"]), "1 layers and the model has 32"),
        (llama(layer_types="full_attention"), "must be a list"),
        (llama(rope_scaling="yarn"), "must be an object"),
        (llama(quantization_config=4), "must be an object"),
        (llama(tie_word_embeddings="no"), "must be true or false"),
        ({"hidden_size": 4096}, "neither “architectures” nor “model_type”"),
        ({"architectures": ["LlavaForConditionalGeneration"], "text_config": 7}, "must be an object"),
    ],
)
def test_it_says_what_is_wrong(source, words):
    assert words in refusal(source)


def test_a_nested_text_config_is_read():
    inner = llama()
    outer = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": inner,
        "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "num_hidden_layers": 24},
    }
    assert read_model(outer).layers == read_model(inner).layers
    assert read_model(outer).tower_parameters > 0


def test_an_unknown_architecture_gives_bounds_and_says_so():
    model = read_model(llama(architectures=["BrandNewForCausalLM"], model_type="brand_new"))
    assert [note.code for note in model.notes] == ["architecture_unknown", "layers_unknown"]
    found = estimate(model, Flags(max_model_len=8192), H200, "0.25.1")
    assert found.weights.low < found.weights.total < found.weights.high
    assert found.high - found.low > 0.3 * found.weights.total


def test_an_unknown_quantisation_is_said():
    model = read_model(llama(quantization_config={"quant_method": "brandnew"}))
    assert [note.code for note in model.notes] == ["quantisation_unknown"]


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_NAMES = [
    *llama(),
    "head_dim",
    "sliding_window",
    "layer_types",
    "quantization_config",
    "rope_scaling",
    "text_config",
    "num_experts",
    "kv_lora_rank",
    "num_kv_shared_layers",
    "torch_dtype",
]


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(_NAMES), _ANY, max_size=4),
    st.sampled_from([None, "gemma3_text", "qwen2"]),
)
def test_nothing_but_a_sentence_comes_of_nonsense(changes, model_type):
    source = llama() | changes
    if model_type:
        source["model_type"] = model_type
    try:
        model = read_model(source)
        estimate(model, Flags(max_model_len=2048), H200, "0.25.1")
    except Unreadable as problem:
        assert problem.note.text()
