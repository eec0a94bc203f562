from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.utils import timezone
from django.utils.translation import gettext as _

from kvadmin.actions import Action, Conflict
from kvadmin.actions.mistakes import Mistakes
from routes.actions.key_input import audited, checked_bounds
from routes.actions.key_states import refuse_ended
from routes.models import Key


@dataclass
class ChangeKey(Action[Key]):
    """Change any bound of a key; it holds within a second. ``changes`` maps bounds (key_input.BOUNDS) to
    their new values; what is not in it stays. A replaced key's ``overlap_ends_at`` may be changed too;
    None lets it stay, which needs that its successor was revoked.
    """

    key: Key
    changes: Mapping[str, Any] = field(default_factory=dict)

    verb: ClassVar[str] = "key.change"
    permission: ClassVar[str] = "key.change"

    def subject(self) -> Key:
        return self.key

    def check(self) -> None:
        refuse_ended(self.key)
        mistakes = Mistakes()
        given = dict(self.changes)
        overlap = {name: given.pop(name) for name in ("overlap_ends_at",) if name in given}
        # an end that was there before may be sent again with the rest, also when it is over by now
        if "expires_at" in given and given["expires_at"] == self.key.expires_at:
            del given["expires_at"]
        self._wanted = {**checked_bounds(given, mistakes), **overlap}
        mistakes.refuse()
        if overlap:
            self._check_overlap(overlap["overlap_ends_at"])

    def _check_overlap(self, end: Any) -> None:
        key = self.key
        if key.overlap_ends_at is None and end is not None:
            raise Conflict(
                _("This key has no successor."), code="key_not_rotated", remedy=_("Rotate it first.")
            )
        if end is None and key.successor is not None:
            raise Conflict(
                _("This key has a successor, so it ends."),
                code="key_has_successor",
                remedy=_("Revoke the successor first, or choose a later end."),
            )
        if end is not None and end <= timezone.now():
            raise Conflict(
                _("That would end the key at once."),
                code="key_would_end",
                remedy=_("Choose a time to come, or revoke the key."),
            )

    def execute(self) -> Key:
        key = Key.objects.select_for_update().get(pk=self.key.pk)
        refuse_ended(key)
        old = {name: getattr(key, name) for name in self._wanted}
        new = {name: value for name, value in self._wanted.items() if old[name] != value}
        self.changed = bool(new)
        if new:
            for name, value in new.items():
                setattr(key, name, value)
            key.save(update_fields=[*new])
        self.before, self.after = audited({name: old[name] for name in new}), audited(new)
        self.key = key
        return key
