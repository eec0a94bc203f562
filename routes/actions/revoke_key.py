from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.utils import timezone
from django.utils.translation import gettext as _

from kvadmin.actions import Action, Conflict
from routes.models import Key


@dataclass
class RevokeKey(Action[Key]):
    """End a key for good; every gateway refuses it within a second."""

    key: Key

    verb: ClassVar[str] = "key.revoke"
    permission: ClassVar[str] = "key.change"

    def subject(self) -> Key:
        return self.key

    def execute(self) -> Key:
        now = timezone.now()
        if Key.objects.filter(pk=self.key.pk, revoked_at=None).update(revoked_at=now) != 1:
            raise Conflict(_("This key was revoked before."), code="key_revoked")
        self.before, self.after = {"revoked_at": None}, {"revoked_at": now.isoformat()}
        self.key.revoked_at = now
        return self.key
