from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.db.models import ProtectedError
from django.utils.translation import gettext as _

from kvadmin.actions.base import Action, Conflict
from kvadmin.actions.team_input import picture
from kvadmin.models import Team


@dataclass
class RemoveTeam(Action[None]):
    """Only once it has no business left, so that no key goes by accident."""

    team: Team

    verb: ClassVar[str] = "team.remove"
    permission: ClassVar[str] = "team.remove"

    def subject(self) -> Team:
        return self.team

    def execute(self) -> None:
        self.before = picture(self.team)
        pk = self.team.pk
        try:
            self.team.delete()
        except ProtectedError:
            raise Conflict(
                _("%(team)s still has businesses.") % {"team": self.team.name},
                code="team_has_businesses",
                remedy=_("Remove them first, or give them to another team."),
            ) from None
        # the audit row names what is gone
        self.team.pk = pk
