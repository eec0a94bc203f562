"""What is known of a model's shape without loading it, for checks against a host."""

from __future__ import annotations

from engines.models import Host
from engines.planning import source_of
from engines.vllm.notes import Unreadable
from engines.vllm.shapes import shape_by_name
from engines.vllm.spec import ServeSpec
from engines.vllm.target import Shape


def shape_of(model: str, host: Host | None) -> Shape:
    """Heads and attention kind of a model: from its config.json where one is at hand, else by its name;
    empty where nothing is known of it."""
    if not model:
        return Shape()
    try:
        source = source_of(ServeSpec(model), host)
    except Unreadable:
        source = None
    if source is None:
        return shape_by_name(model)
    found = source.model
    attention = "mla" if found.latent is not None else "hybrid" if found.hybrid else ""
    return Shape(found.heads or None, found.kv_heads or None, attention)
