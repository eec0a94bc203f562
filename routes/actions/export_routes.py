from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from kvadmin.actions import Action
from routes.models import Route, Target
from routes.playbook import Entry, write_routes


@dataclass
class ExportRoutes(Action[list[dict[str, Any]]]):
    """Routes as the playbook's JSON, an entry for each target, api_key left out. Changes nothing."""

    routes: Iterable[Route] | None = None

    verb: ClassVar[str] = "route.export"
    permission: ClassVar[str] = "route.view"

    def execute(self) -> list[dict[str, Any]]:
        self.changed = False
        routes = Route.objects.with_targets() if self.routes is None else self.routes
        return write_routes(_entry(route, target) for route in routes for target in route.targets.all())


def _entry(route: Route, target: Target) -> Entry:
    return Entry(
        route.name,
        target.engine.base_url if target.engine is not None else target.base_url,
        max_tokens=route.max_tokens,
        timeout=route.total_s,
    )
