"""Who may do what: the one place that answers "may this user…".

A permission is ``noun.verb``; the table names the least role that has it. Roles are ordered:
administrator, operator, viewer, member. A member belongs to teams only and sees no hosts or engines.

What a team owns is also its people's, whatever their role: the second table names the least place in
the team that has the permission there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from kvadmin.models import User


class Role(models.TextChoices):
    ADMINISTRATOR = "administrator", _("Administrator")
    OPERATOR = "operator", _("Operator")
    VIEWER = "viewer", _("Viewer")
    MEMBER = "member", _("Member")


class TeamRole(models.TextChoices):
    OWNER = "owner", _("Owner")
    MEMBER = "member", _("Member")


_RANK = {Role.MEMBER: 0, Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMINISTRATOR: 3}
_TEAM_RANK = {TeamRole.MEMBER: 0, TeamRole.OWNER: 1}

#: permission -> least role
PERMISSIONS: dict[str, Role] = {
    "fleet.view": Role.VIEWER,
    "host.view": Role.VIEWER,
    "host.change": Role.OPERATOR,
    "host.operate": Role.OPERATOR,
    "profile.view": Role.VIEWER,
    "profile.change": Role.OPERATOR,
    "engine.view": Role.VIEWER,
    "engine.change": Role.OPERATOR,
    "engine.operate": Role.OPERATOR,
    "engine.log": Role.VIEWER,
    "operation.view": Role.VIEWER,
    "operation.cancel": Role.OPERATOR,
    "route.view": Role.VIEWER,
    "route.change": Role.OPERATOR,
    "team.view_all": Role.OPERATOR,
    "team.change_all": Role.ADMINISTRATOR,
    "team.view": Role.OPERATOR,
    "team.create": Role.ADMINISTRATOR,
    "team.change": Role.ADMINISTRATOR,
    "team.remove": Role.ADMINISTRATOR,
    "business.change": Role.ADMINISTRATOR,
    "key.change": Role.ADMINISTRATOR,
    "gateway.use": Role.MEMBER,
    "user.view": Role.ADMINISTRATOR,
    "user.change": Role.ADMINISTRATOR,
    "audit.view": Role.ADMINISTRATOR,
    "token.own": Role.MEMBER,
    "account.own": Role.MEMBER,
    "system.view": Role.OPERATOR,
}

#: permission -> least place in the owning team, for those below the role
TEAM_PERMISSIONS: dict[str, TeamRole] = {
    "team.view": TeamRole.MEMBER,
    "team.change": TeamRole.OWNER,
    "business.change": TeamRole.OWNER,
    "key.change": TeamRole.OWNER,
}


def role_needed(permission: str) -> Role:
    """The least role that has a permission. An unknown permission is a programming error."""
    return PERMISSIONS[permission]


def whom_to_ask(permission: str) -> str:
    """A sentence for somebody who may not: who could do it, or give the role."""
    if TEAM_PERMISSIONS.get(permission) == TeamRole.OWNER:
        return gettext("Ask an owner of the team, or an administrator.")
    return gettext("Ask an administrator for the role that may: %(role)s.") % {
        "role": role_needed(permission).label
    }


def allows(user: User, permission: str, subject: Any = None) -> bool:
    """True if an active user has the permission (on the subject, where ownership matters).

    A subject that belongs to a team says so by ``owning_team_id``. Without a subject, a permission that
    places in a team give is had by whoever has such a place in any.
    """
    needed = role_needed(permission)
    if not getattr(user, "is_authenticated", False) or not user.is_active:
        return False
    if permission.endswith(".own") and subject is not None:
        owner_id = getattr(subject, "user_id", None) or getattr(subject, "pk", None)
        if owner_id != user.pk:
            return False
    if _RANK[Role(user.role)] >= _RANK[needed]:
        return True
    return permission in TEAM_PERMISSIONS and _in_team(user, TEAM_PERMISSIONS[permission], subject)


def _in_team(user: User, least: TeamRole, subject: Any) -> bool:
    places = user.memberships.all()
    if subject is not None:
        places = places.filter(team=subject.owning_team_id)
    return any(
        _TEAM_RANK[TeamRole(role)] >= _TEAM_RANK[least] for role in places.values_list("role", flat=True)
    )
