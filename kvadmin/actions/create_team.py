from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from kvadmin.actions.base import Action, Invalid
from kvadmin.actions.mistakes import Mistakes
from kvadmin.actions.team_input import name_problem, picture, refuse_without_owner
from kvadmin.models import Team, User
from kvadmin.policies import TeamRole


@dataclass
class CreateTeam(Action[Team]):
    """A team with its people. ``without_owner`` lets it begin with none."""

    name: str
    people: Mapping[User, str] = field(default_factory=dict)
    without_owner: bool = False

    verb: ClassVar[str] = "team.create"
    permission: ClassVar[str] = "team.create"

    def check(self) -> None:
        self.name = self.name.strip()
        mistakes = Mistakes()
        if problem := name_problem(self.name):
            mistakes.add("name", problem)
        if any(role not in TeamRole.values for role in self.people.values()):
            mistakes.add("people", _("A person in a team is an owner or a member."))
        owners = [user for user, role in self.people.items() if role == TeamRole.OWNER and user.is_active]
        if not owners and not self.without_owner:
            mistakes.add("people", _("Name at least one owner, who then issues the team's keys."))
        mistakes.refuse()

    def execute(self) -> Team:
        try:
            with transaction.atomic():
                team = Team.objects.create(name=self.name)
        except IntegrityError:
            raise Invalid(_("Another team has this name."), field="name") from None
        for user, role in self.people.items():
            team.memberships.create(user=user, role=role)
        if not self.without_owner:
            refuse_without_owner(team)
        self.after = picture(team)
        return team
