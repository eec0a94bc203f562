from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.db import models
from django.utils import timezone

from kvadmin.accounts import locks
from kvadmin.accounts.adapters import clear_sign_in_limits
from kvadmin.accounts.passwords import one_time_password
from kvadmin.actions.base import Action
from kvadmin.models import ManagementToken, User


@dataclass
class ResetPassword(Action[str]):
    """A one-time password in place of the present one; returned once, stored nowhere.

    The person's sessions and management tokens end, a lock is lifted, and the next sign-in asks for a
    new password.
    """

    user: User

    verb: ClassVar[str] = "user.reset_password"
    permission: ClassVar[str] = "user.change"

    def subject(self) -> models.Model:
        return self.user

    def execute(self) -> str:
        password = one_time_password()
        self.user.set_password(password)
        self.user.must_change_password = True
        self.user.save(update_fields=["password", "must_change_password"])
        locks.clear(self.user)
        clear_sign_in_limits(self.user)
        tokens = ManagementToken.objects.filter(user=self.user, revoked_at=None)
        self.after = {
            "must_change_password": True,
            "tokens_revoked": tokens.update(revoked_at=timezone.now()),
        }
        return password
