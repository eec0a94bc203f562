"""Heads and attention kind of a model: from its config.json on the host, from a table, or unknown."""

from __future__ import annotations

import pytest

from engines.model_shapes import shape_of
from engines.models import ModelConfig
from engines.planner.known import known_config, known_names
from engines.planner.reading import read_model
from engines.vllm.shapes import shape_by_name
from engines.vllm.target import Shape
from tests.support.factories import HostFactory


@pytest.mark.django_db
def test_the_config_on_a_host_decides():
    host = HostFactory()
    config = {**known_config("Qwen/Qwen3-8B"), "num_attention_heads": 48, "num_key_value_heads": 6}
    ModelConfig.objects.create(host=host, path="/data/own", name="Qwen/Qwen3-8B", config=config)
    assert shape_of("Qwen/Qwen3-8B", host) == Shape(48, 6)
    assert shape_of("/data/own", host) == Shape(48, 6)


@pytest.mark.django_db
def test_a_config_that_cannot_be_used_leaves_the_name():
    host = HostFactory()
    ModelConfig.objects.create(
        host=host, path="/data/Qwen3-8B", name="x", config={"num_hidden_layers": "many"}
    )
    assert shape_of("/data/Qwen3-8B", host) == Shape(32, 8)
    assert shape_of("", host) == Shape()


@pytest.mark.django_db
def test_nothing_is_claimed_of_a_model_that_nobody_knows():
    assert shape_of("acme/own-8b", None) == Shape()


@pytest.mark.parametrize("name", known_names())
def test_the_table_of_names_agrees_with_the_configs(name):
    told, model = shape_by_name(name), read_model(known_config(name))
    if told != Shape():
        attention = "mla" if model.latent is not None else "hybrid" if model.hybrid else ""
        assert told == Shape(model.heads, model.kv_heads, attention)
