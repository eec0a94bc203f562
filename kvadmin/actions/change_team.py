from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from kvadmin import policies
from kvadmin.actions.base import Action, Denied, Invalid
from kvadmin.actions.mistakes import Mistakes
from kvadmin.actions.team_input import name_problem, picture, refuse_without_owner
from kvadmin.models import Team, User
from kvadmin.policies import TeamRole


@dataclass
class ChangeTeam(Action[Team]):
    """Another name, or other people: ``people`` gives each their place, None takes them out.

    A team keeps an owner who may sign in, also when two people change it at once, unless an
    administrator says ``without_owner``. People are changed by the team's owners; somebody who is no
    longer among them has lost the team's keys at once.
    """

    team: Team
    name: str | None = None
    people: Mapping[User, str | None] = field(default_factory=dict)
    without_owner: bool = False

    verb: ClassVar[str] = "team.change"
    permission: ClassVar[str] = "team.change"

    def subject(self) -> Team:
        return self.team

    def authorize(self) -> None:
        super().authorize()
        user = self.actor.user
        if self.without_owner and user is not None and not policies.allows(user, "team.change_all"):
            raise Denied(
                _("Only an administrator may leave a team without an owner."),
                code="permission_denied",
                remedy=_("Make somebody else an owner first."),
            )

    def check(self) -> None:
        mistakes = Mistakes()
        if self.name is not None:
            self.name = self.name.strip()
            if problem := name_problem(self.name, self.team):
                mistakes.add("name", problem)
        if any(role is not None and role not in TeamRole.values for role in self.people.values()):
            mistakes.add("people", _("A person in a team is an owner or a member."))
        for user, role in self.people.items():
            if role is not None and not user.is_active:
                mistakes.add(
                    "people", _("%(name)s may not sign in any more.") % {"name": user.get_username()}
                )
        mistakes.refuse()

    def execute(self) -> Team:
        team = Team.objects.select_for_update().get(pk=self.team.pk)
        self.before = picture(team)
        if self.name is not None and self.name != team.name:
            team.name = self.name
            try:
                with transaction.atomic():
                    team.save(update_fields=["name"])
            except IntegrityError:
                raise Invalid(_("Another team has this name."), field="name") from None
        for user, role in self.people.items():
            if role is None:
                team.memberships.filter(user=user).delete()
            else:
                team.memberships.update_or_create(user=user, defaults={"role": role})
        if self.people and not self.without_owner:
            refuse_without_owner(team)
        self.after = picture(team)
        self.changed = self.before != self.after
        self.team = team
        return team
