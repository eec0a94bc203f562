from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from django.db import models
from django.utils.translation import gettext as _

from kvadmin.actions.base import Action, Conflict, Invalid
from kvadmin.actions.create_user import email_errors
from kvadmin.models import User
from kvadmin.policies import Role


@dataclass
class ChangeUser(Action[User]):
    """Another role, name, address, or whether the person may sign in. None leaves a value as it is.

    The last active administrator stays one, also when two administrators change each other at once.
    """

    user: User
    role: str | None = None
    is_active: bool | None = None
    name: str | None = None
    email: str | None = None

    verb: ClassVar[str] = "user.change"
    permission: ClassVar[str] = "user.change"

    def subject(self) -> models.Model:
        return self.user

    def check(self) -> None:
        if self.role is not None and self.role not in Role.values:
            raise Invalid(_("Choose one of the roles."), field="role")
        if self.email is not None and (found := email_errors(self.email.strip(), besides=self.user)):
            raise Invalid(found[0], field="email")
        if self.is_active is False and self.actor.user == self.user:
            raise Conflict(
                _("You cannot deactivate yourself."),
                code="own_account",
                remedy=_("Ask another administrator to do it."),
            )

    def _keeps_an_administrator(self, user: User) -> None:
        stays = (self.role or user.role) == Role.ADMINISTRATOR and (
            user.is_active if self.is_active is None else self.is_active
        )
        if stays or user.role != Role.ADMINISTRATOR or not user.is_active:
            return
        others = User.objects.select_for_update().filter(role=Role.ADMINISTRATOR, is_active=True)
        if not [other for other in others if other.pk != user.pk]:
            raise Conflict(
                _("This is the last active administrator."),
                code="last_administrator",
                remedy=_("Make somebody else an administrator first."),
            )

    def execute(self) -> User:
        # one order for everybody who changes administrators, so that two cannot wait for each other
        locked = User.objects.select_for_update().filter(
            models.Q(pk=self.user.pk) | models.Q(role=Role.ADMINISTRATOR)
        )
        user = next(row for row in locked.order_by("pk") if row.pk == self.user.pk)
        self._keeps_an_administrator(user)
        wanted: dict[str, Any] = {
            "role": self.role,
            "is_active": self.is_active,
            "first_name": None if self.name is None else self.name.strip()[:150],
            "email": None if self.email is None else self.email.strip(),
        }
        for name, value in wanted.items():
            if value is not None and getattr(user, name) != value:
                self.before[name] = getattr(user, name)
                self.after[name] = value
                setattr(user, name, value)
        if self.name is not None and user.last_name:
            user.last_name = ""
        user.save()
        self.user = user
        return user
