"""Rows as the facts that routes/warnings.py judges."""

from __future__ import annotations

from engines.vllm.notes import Note
from routes.models import Key, Route, Target
from routes.warnings import RouteFacts, TargetFacts, key_warnings, route_warnings


def target_facts(target: Target) -> TargetFacts:
    engine = target.engine
    if engine is None:
        return TargetFacts(str(target), target.enabled, base_url=target.base_url, model=target.model)
    return TargetFacts(
        engine.name,
        target.enabled,
        model=target.model,
        served_names=tuple(engine.served_names),
        max_model_len=engine.max_model_len,
        state=engine.observed,
    )


def warnings_of_route(route: Route) -> list[Note]:
    return route_warnings(
        RouteFacts(
            route.name,
            tuple(route.aliases),
            route.enabled,
            route.max_tokens,
            route.context_length,
            tuple(target_facts(target) for target in route.targets.all()),
            route.fallback.name if route.fallback is not None else "",
            route.fallback is None or route.fallback.enabled,
        )
    )


def warnings_of_key(key: Key) -> list[Note]:
    if not key.models:
        return []
    names: set[str] = set()
    off: set[str] = set()
    for name, aliases, enabled in Route.objects.values_list("name", "aliases", "enabled"):
        names |= {name, *aliases}
        if not enabled:
            off.add(name)
    return key_warnings(key.models, names, off)
