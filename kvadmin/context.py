"""Template context of every page."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _

from kvadmin.exposure import exposure_warning
from kvadmin.models.user import Theme
from kvadmin.navigation import sections_for
from kvadmin.policies import allows
from kvadmin.up.status import STOPPED, WAITING, read_status


class May:
    """``{% if may.engine_change %}``: the signed-in person's permission ``engine.change``."""

    def __init__(self, request: HttpRequest):
        self._user = getattr(request, "user", None)

    def __getitem__(self, name: str) -> bool:
        return self._user is not None and allows(self._user, name.replace("_", ".", 1))


def may(request: HttpRequest) -> dict[str, May]:
    return {"may": May(request)}


def _sections(request: HttpRequest) -> list[Any]:
    down = [row for row in read_status(settings.HOME) if row.state in {WAITING, STOPPED}]
    return sections_for(request.user, request.path, {"kvadmin:system": len(down)})


def frame(request: HttpRequest) -> dict[str, Any]:
    """``theme``, ``sections`` of the sidebar, ``exposure`` and the words that modules say."""
    user = getattr(request, "user", None)
    signed_in = bool(user is not None and user.is_authenticated)
    return {
        "theme": user.theme if signed_in else Theme.SYSTEM,
        "themes": Theme.choices,
        "sections": SimpleLazyObject(lambda: _sections(request) if signed_in else []),
        "exposure": exposure_warning() or "",
        "words": {
            "copied": _("Copied"),
            "copy_failed": _("Could not copy: select the text and copy it by hand."),
            "s": _("%(n)d s ago").replace("%(n)d", "#"),
            "min": _("%(n)d min ago").replace("%(n)d", "#"),
            "h": _("%(n)d h ago").replace("%(n)d", "#"),
            "d": _("%(n)d d ago").replace("%(n)d", "#"),
            "offline": _("The console does not answer. What you see may be old."),
            "no_results": _("Nothing found."),
        },
    }
