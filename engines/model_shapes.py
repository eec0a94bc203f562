"""What is known of a model's shape without loading it, for checks against a host."""

from __future__ import annotations

from engines.models import Host
from engines.vllm.shapes import shape_by_name
from engines.vllm.target import Shape


def shape_of(model: str, host: Host | None) -> Shape:
    """Heads and attention kind of a model; empty where nothing is known of it."""
    del host
    return shape_by_name(model)
