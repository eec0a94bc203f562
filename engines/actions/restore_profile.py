"""Bring an archived profile back."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from engines.models import Profile
from kvadmin.actions import Action, Conflict


@dataclass
class RestoreProfile(Action[Profile]):
    verb = "profile.restore"
    permission = "profile.change"

    profile: Profile

    def subject(self) -> Profile:
        return self.profile

    def check(self) -> None:
        if self.profile.archived_at is None:
            raise Conflict(_("This profile is not archived."), code="profile_not_archived")

    def execute(self) -> Profile:
        self.profile.archived_at = None
        self.profile.save(update_fields=["archived_at"])
        self.before, self.after = {"archived": True}, {"archived": False}
        return self.profile
