from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engines.models import Engine
from kvadmin.actions import Action
from routes.models import Route, Target


@dataclass
class JoinRoutes(Action[list[Route]]):
    """Make an engine a target of every route that lets engines join and has a name that it serves.

    A target that somebody switched off stays off. Changes nothing when called again.
    """

    engine: Engine

    verb: ClassVar[str] = "route.join"
    permission: ClassVar[str] = "route.change"

    def subject(self) -> Engine:
        return self.engine

    def execute(self) -> list[Route]:
        served = set(self.engine.served_names)
        joined = []
        for route in Route.objects.select_for_update().filter(auto_join=True):
            if served & set(route.names):
                _target, made = Target.objects.get_or_create(route=route, engine=self.engine)
                if made:
                    joined.append(route)
        self.after = {"routes": [route.name for route in joined]}
        self.changed = bool(joined)
        return joined
