"""Template context of every page."""

from __future__ import annotations

from django.http import HttpRequest

from kvadmin.policies import allows


class May:
    """``{% if may.engine_change %}``: the signed-in person's permission ``engine.change``."""

    def __init__(self, request: HttpRequest):
        self._user = getattr(request, "user", None)

    def __getitem__(self, name: str) -> bool:
        return self._user is not None and allows(self._user, name.replace("_", ".", 1))


def may(request: HttpRequest) -> dict[str, May]:
    return {"may": May(request)}
