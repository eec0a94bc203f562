from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from allauth.mfa.models import Authenticator
from django.db import models
from django.utils.translation import gettext as _

from kvadmin.actions.base import Action, Conflict
from kvadmin.models import User


@dataclass
class ResetFactors(Action[int]):
    """Remove a person's app, passkeys and recovery codes (a lost phone); returns how many."""

    user: User

    verb: ClassVar[str] = "user.reset_factors"
    permission: ClassVar[str] = "user.change"

    def subject(self) -> models.Model:
        return self.user

    def check(self) -> None:
        if not Authenticator.objects.filter(user=self.user).exists():
            raise Conflict(_("This account has no second factor."), code="no_factors")

    def execute(self) -> int:
        rows = Authenticator.objects.filter(user=self.user)
        self.before = dict(Counter(rows.values_list("type", flat=True)))
        return rows.delete()[0]
