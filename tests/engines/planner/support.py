"""Models and cards for tests of the planner."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from engines.planner.estimate import Estimate, estimate
from engines.planner.flags import Card, Flags
from engines.planner.model import Model
from engines.planner.reading import read_model

DATA = Path(__file__).resolve().parents[2] / "data" / "h200"
H200 = Card("NVIDIA H200", 150_109_880_320)


@cache
def sample(name: str) -> Model:
    return read_model((DATA / "configs" / f"{name}.json").read_bytes())


def raw(name: str) -> dict[str, Any]:
    return json.loads((DATA / "configs" / f"{name}.json").read_text())


def llama(**fields: Any) -> dict[str, Any]:
    """A small config.json of the plainest kind, with some fields changed; None takes one out."""
    found = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "vocab_size": 128256,
        "torch_dtype": "bfloat16",
        **fields,
    }
    return {name: value for name, value in found.items() if value is not None}


def planned(name: str = "Qwen3-8B", version: str = "0.25.1", card: Card = H200, **flags: Any) -> Estimate:
    return estimate(sample(name), Flags(**flags), card, version)
