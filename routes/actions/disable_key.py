from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.utils import timezone
from django.utils.translation import gettext as _

from kvadmin.actions import Action, Conflict
from routes.actions.key_states import refuse_ended
from routes.models import Key


@dataclass
class DisableKey(Action[Key]):
    """Keep a key from working until it is enabled again."""

    key: Key

    verb: ClassVar[str] = "key.disable"
    permission: ClassVar[str] = "key.change"

    def subject(self) -> Key:
        return self.key

    def check(self) -> None:
        refuse_ended(self.key)

    def execute(self) -> Key:
        now = timezone.now()
        working = Key.objects.filter(pk=self.key.pk, disabled_at=None, revoked_at=None)
        if working.update(disabled_at=now) != 1:
            raise Conflict(_("This key is disabled already."), code="key_disabled")
        self.before, self.after = {"disabled": False}, {"disabled": True}
        self.key.disabled_at = now
        return self.key
