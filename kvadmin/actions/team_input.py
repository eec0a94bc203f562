"""What the actions on teams have in common."""

from __future__ import annotations

from django.utils.translation import gettext as _

from kvadmin.actions.base import Conflict
from kvadmin.models import Team
from kvadmin.policies import TeamRole

LONGEST_NAME = 100


def name_problem(name: str, team: Team | None = None) -> str:
    """Why a name will not do, or an empty string."""
    if not name:
        return _("Give the team a name.")
    if len(name) > LONGEST_NAME:
        return _("Use at most 100 characters.")
    others = Team.objects.filter(name__iexact=name)
    if team is not None:
        others = others.exclude(pk=team.pk)
    return _("Another team has this name.") if others.exists() else ""


def picture(team: Team) -> dict[str, object]:
    """A team for the audit."""
    people = team.memberships.select_related("user").order_by("user__username")
    return {"name": team.name, "people": {place.user.username: place.role for place in people}}


def refuse_without_owner(team: Team) -> None:
    """Conflict when none of its owners could sign in."""
    if not team.memberships.filter(role=TeamRole.OWNER, user__is_active=True).exists():
        raise Conflict(
            _("%(team)s would have no owner: nobody could issue or revoke its keys.") % {"team": team.name},
            code="last_owner",
            remedy=_("Make somebody else an owner first."),
        )
