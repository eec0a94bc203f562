from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.db import connection

from engines.choices import EngineState
from engines.models import Engine
from engines.vllm.notes import Note
from kvadmin.actions import Action
from kvadmin.actions.mistakes import Mistakes
from routes import naming
from routes.actions.route_input import SETTINGS, TargetInput, check_route, check_targets, picture
from routes.facts import warnings_of_route
from routes.models import Route, Target


@dataclass
class SaveRoute(Action[Route]):
    """Make a route, or change one. ``values`` maps settings (route_input.SETTINGS) to their values; what is
    not in it stays, or is the default. ``targets`` are all targets as they should be; None leaves them.

    With ``auto_join`` the ready engines that serve the route's name become targets at once.
    """

    route: Route | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    targets: Sequence[TargetInput] | None = None

    verb: ClassVar[str] = "route.save"
    permission: ClassVar[str] = "route.change"

    def subject(self) -> Route | None:
        return self.route

    def check(self) -> None:
        unknown = set(self.values) - set(SETTINGS)
        if unknown:
            raise TypeError(f"no settings of a route: {sorted(unknown)}")
        self._checked(Route.objects.get(pk=self.route.pk) if self.route is not None else Route())

    def _checked(self, route: Route) -> tuple[Route, list[Target] | None]:
        mistakes = Mistakes()
        for name, value in self.values.items():
            setattr(route, name, value)
        check_route(route, mistakes)
        targets = None if self.targets is None else check_targets(route, self.targets, mistakes)
        mistakes.refuse()
        return route, targets

    def execute(self) -> Route:
        # names are unique over names and aliases of all routes, which no index can hold
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE routes_route IN SHARE ROW EXCLUSIVE MODE")
        if self.route is not None:
            self.before = picture(Route.objects.get(pk=self.route.pk))
        route, targets = self._checked(
            Route.objects.select_for_update().get(pk=self.route.pk) if self.route is not None else Route()
        )
        keys_before = _keys(route)
        route.save()
        if targets is not None:
            route.targets.exclude(pk__in=[target.pk for target in targets if target.pk]).delete()
            for target in targets:
                target.route = route
                target.save()
        if route.auto_join:
            join_ready_engines(route)
        route = Route.objects.with_targets().get(pk=route.pk)
        self.after = picture(route)
        self.changed = self.before != self.after or keys_before != _keys(route)
        self.route = route
        return route

    @property
    def hints(self) -> list[Note]:
        """What is worth saying about a route that was saved: its name, and what does not fit together."""
        return [*naming.hints(self.route.name), *warnings_of_route(self.route)] if self.route else []


def _keys(route: Route) -> dict[int, str]:
    """The stored texts of the targets' keys, to see a change that the audit must not show."""
    if route.pk is None:
        return {}
    return {pk: str(key) for pk, key in route.targets.values_list("pk", "api_key") if key}


def join_ready_engines(route: Route) -> int:
    """Make the ready engines that serve one of the route's names its targets; how many there were."""
    joined = 0
    ready = Engine.objects.filter(observed=EngineState.READY).exclude(targets__route=route)
    for engine in ready:
        if set(engine.served_names) & set(route.names):
            Target.objects.create(route=route, engine=engine)
            joined += 1
    return joined
