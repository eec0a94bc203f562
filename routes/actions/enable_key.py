from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.utils.translation import gettext as _

from kvadmin.actions import Action, Conflict
from routes.actions.key_states import refuse_ended
from routes.models import Key


@dataclass
class EnableKey(Action[Key]):
    """Let a disabled key work again."""

    key: Key

    verb: ClassVar[str] = "key.enable"
    permission: ClassVar[str] = "key.change"

    def subject(self) -> Key:
        return self.key

    def check(self) -> None:
        refuse_ended(self.key)

    def execute(self) -> Key:
        waiting = Key.objects.filter(pk=self.key.pk, disabled_at__isnull=False, revoked_at=None)
        if waiting.update(disabled_at=None) != 1:
            raise Conflict(_("This key is not disabled."), code="key_not_disabled")
        self.before, self.after = {"disabled": True}, {"disabled": False}
        self.key.disabled_at = None
        return self.key
