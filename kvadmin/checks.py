"""System checks: what would go wrong later, said before the start."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError

from kvadmin import advisory
from kvadmin.exposure import exposure_warning


@register(Tags.security)
def check_exposure(**kwargs: Any) -> list[CheckMessage]:
    text = exposure_warning()
    return [Warning(str(text), id="kvadmin.W001")] if text else []


@register(Tags.security)
def check_debug(**kwargs: Any) -> list[CheckMessage]:
    if not settings.DEBUG:
        return []
    return [
        Warning(
            "KVADMIN_DEBUG is on: an error page shows settings and source to whoever meets it.",
            hint="Leave KVADMIN_DEBUG out, except on a developer's own machine.",
            id="kvadmin.W002",
        )
    ]


@register(Tags.database)
def check_advisory_locks(databases: list[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Only where the database is asked for (``manage.py check --database default``, migrate)."""
    if "default" not in (databases or []):
        return []
    try:
        advisory.check_session_locks()
    except advisory.LocksDoNotHold as error:
        return [Error(str(error), id="kvadmin.E001")]
    except DatabaseError:
        # whoever needs the database next says what is wrong with it
        return []
    return []
