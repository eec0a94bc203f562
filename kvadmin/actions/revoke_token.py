from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.utils import timezone
from django.utils.translation import gettext as _

from kvadmin.actions.base import Action, Conflict
from kvadmin.models import ManagementToken


@dataclass
class RevokeToken(Action[ManagementToken]):
    """End a token's use at once. Only its owner may (and kvadmin itself, by the command)."""

    token: ManagementToken

    verb: ClassVar[str] = "token.revoke"
    permission: ClassVar[str] = "token.own"

    def subject(self) -> ManagementToken:
        return self.token

    def execute(self) -> ManagementToken:
        now = timezone.now()
        changed = ManagementToken.objects.filter(pk=self.token.pk, revoked_at=None).update(revoked_at=now)
        if changed != 1:
            raise Conflict(_("This token was revoked before."), code="token_revoked")
        self.before, self.after = {"revoked_at": None}, {"revoked_at": now.isoformat()}
        self.token.revoked_at = now
        return self.token
