from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext as _

from kvadmin.actions import Action, Conflict, Invalid
from kvadmin.actions.mistakes import Mistakes
from routes.actions.issue_key import IssuedKey, make_key
from routes.actions.key_input import audited, bounds_of, checked_bounds
from routes.actions.key_states import refuse_ended
from routes.models import Key

DEFAULT_OVERLAP = timedelta(days=7)
LONGEST_OVERLAP = timedelta(days=90)


@dataclass
class RotateKey(Action[IssuedKey]):
    """A successor with the same bounds. Both work for ``overlap``, then the old key ends by itself; an
    overlap of nothing ends it at once.

    The successor expires at ``expires_at``; without one, after as long as the old key was issued for.
    """

    key: Key
    overlap: timedelta = DEFAULT_OVERLAP
    expires_at: datetime | None = None

    verb: ClassVar[str] = "key.rotate"
    permission: ClassVar[str] = "key.change"

    _made: Key | None = field(default=None, init=False, repr=False)

    def subject(self) -> models.Model:
        return self.key

    def check(self) -> None:
        refuse_ended(self.key)
        if not timedelta(0) <= self.overlap <= LONGEST_OVERLAP:
            raise Invalid(
                _("Both keys can work for at most %(days)d days.") % {"days": LONGEST_OVERLAP.days},
                field="overlap",
            )
        if self.expires_at is not None:
            mistakes = Mistakes()
            checked_bounds({"expires_at": self.expires_at}, mistakes)
            mistakes.refuse()

    def execute(self) -> IssuedKey:
        key = Key.objects.select_for_update().select_related("business").get(pk=self.key.pk)
        refuse_ended(key)
        if key.disabled_at is not None:
            raise Conflict(
                _("This key is disabled."), code="key_disabled", remedy=_("Enable it, then rotate it.")
            )
        if key.successor is not None:
            raise Conflict(
                _("This key has a successor already: %(key)s.") % {"key": key.successor},
                code="key_has_successor",
                remedy=_("Use that one, or revoke it first."),
            )
        now = timezone.now()
        bounds = bounds_of(key)
        if self.expires_at is not None:
            bounds["expires_at"] = self.expires_at
        elif key.expires_at is not None:
            bounds["expires_at"] = now + (key.expires_at - key.created_at)
        issued = make_key(key.business, bounds, created_by=self.actor.user, predecessor=key)
        old_end = key.overlap_ends_at
        key.overlap_ends_at = now + self.overlap
        key.save(update_fields=["overlap_ends_at"])
        self.before = audited({"overlap_ends_at": old_end})
        self.after = audited(
            {
                "overlap_ends_at": key.overlap_ends_at,
                "successor": issued.key.masked,
                "successor_id": issued.key.pk,
                "expires_at": issued.key.expires_at,
            }
        )
        self.key.overlap_ends_at = key.overlap_ends_at
        return issued
