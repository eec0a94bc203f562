from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.db import models

from kvadmin.accounts import locks
from kvadmin.accounts.adapters import clear_sign_in_limits
from kvadmin.actions.base import Action
from kvadmin.models import User


@dataclass
class LiftLock(Action[None]):
    """Let a person who was locked out after wrong passwords try again now."""

    user: User

    verb: ClassVar[str] = "user.lift_lock"
    permission: ClassVar[str] = "user.change"

    def subject(self) -> models.Model:
        return self.user

    def execute(self) -> None:
        if self.user.locked_until is not None:
            self.before = {"locked_until": self.user.locked_until.isoformat()}
        locks.clear(self.user)
        clear_sign_in_limits(self.user)
