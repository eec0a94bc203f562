from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kvadmin.actions import Action
from routes.actions.route_input import picture
from routes.models import Route


@dataclass
class RemoveRoute(Action[None]):
    """Callers of its name get 404 from then on; its engines stay as they are."""

    route: Route

    verb: ClassVar[str] = "route.remove"
    permission: ClassVar[str] = "route.change"

    def subject(self) -> Route:
        return self.route

    def execute(self) -> None:
        self.before = picture(self.route)
        pk = self.route.pk
        self.route.delete()
        # the audit row names what is gone
        self.route.pk = pk
