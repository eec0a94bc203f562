"""Who may do what: the one place that answers "may this user…".

A permission is ``noun.verb``; the table names the least role that has it. Roles are ordered:
administrator, operator, viewer, member. A member belongs to teams only and sees no hosts or engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from kvadmin.models import User


class Role(models.TextChoices):
    ADMINISTRATOR = "administrator", _("Administrator")
    OPERATOR = "operator", _("Operator")
    VIEWER = "viewer", _("Viewer")
    MEMBER = "member", _("Member")


_RANK = {Role.MEMBER: 0, Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMINISTRATOR: 3}

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
    "user.view": Role.ADMINISTRATOR,
    "user.change": Role.ADMINISTRATOR,
    "audit.view": Role.ADMINISTRATOR,
    "token.own": Role.MEMBER,
    "account.own": Role.MEMBER,
    "system.view": Role.OPERATOR,
}


def role_needed(permission: str) -> Role:
    """The least role that has a permission. An unknown permission is a programming error."""
    return PERMISSIONS[permission]


def allows(user: User, permission: str, subject: Any = None) -> bool:
    """True if an active user has the permission (on the subject, where ownership matters)."""
    needed = role_needed(permission)
    if not getattr(user, "is_authenticated", False) or not user.is_active:
        return False
    if permission.endswith(".own") and subject is not None:
        owner_id = getattr(subject, "user_id", None) or getattr(subject, "pk", None)
        if owner_id != user.pk:
            return False
    return _RANK[Role(user.role)] >= _RANK[needed]
