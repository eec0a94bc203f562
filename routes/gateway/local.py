"""What the gateway answers without an engine: the models that a key may call. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson

from routes.gateway.decide import callable_routes, find_route
from routes.gateway.paths import Found
from routes.gateway.records import KeyRecord, RouteRecord, Snapshot


def max_model_len(route: RouteRecord) -> int | None:
    """The longest request that any of its engines takes, or less where the route says so; None where neither
    is known."""
    known = [target.max_model_len for target in route.targets if target.max_model_len]
    told = [length for length in (max(known, default=None), route.context_length) if length]
    return min(told, default=None)


def _openai(route: RouteRecord, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(route.created_at),
        "owned_by": "kvadmin",
        "root": route.name,
        "parent": None,
        "max_model_len": max_model_len(route),
        "permission": [],
    }


def _anthropic(route: RouteRecord, name: str) -> dict[str, Any]:
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(route.created_at))
    return {
        "type": "model",
        "id": name,
        "display_name": route.description or name,
        "created_at": made,
        "max_input_tokens": max_model_len(route),
    }


def answer_locally(snapshot: Snapshot, key: KeyRecord, found: Found, headers: Mapping[bytes, bytes]) -> bytes:
    """The list of models, or one; in Anthropic's shape to a caller that speaks it. Raises Fault."""
    shape = _anthropic if b"anthropic-version" in headers else _openai
    if found.path.kind == "model":
        return orjson.dumps(shape(find_route(snapshot, key, found.rest), found.rest))
    items = [shape(route, route.name) for route in callable_routes(snapshot, key)]
    if shape is _anthropic:
        ends = [items[0]["id"], items[-1]["id"]] if items else [None, None]
        return orjson.dumps({"data": items, "has_more": False, "first_id": ends[0], "last_id": ends[1]})
    return orjson.dumps({"object": "list", "data": items})
