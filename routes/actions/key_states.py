"""What the present state of a key allows, in sentences."""

from __future__ import annotations

from django.utils.translation import gettext as _

from kvadmin.actions import Conflict
from routes.choices import KeyState
from routes.models import Key


def refuse_ended(key: Key) -> None:
    """Conflict for a key that can never work again."""
    state = key.state
    if state == KeyState.REVOKED:
        raise Conflict(
            _("This key was revoked."), code="key_revoked", remedy=_("Issue a new one for the business.")
        )
    if state == KeyState.ROTATED:
        raise Conflict(
            _("This key was replaced and has ended."),
            code="key_rotated",
            remedy=_("Use its successor, or issue a new one."),
        )
