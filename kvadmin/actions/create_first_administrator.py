from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import ClassVar

from django.utils.translation import gettext as _

from kvadmin.actions.base import Action, Conflict
from kvadmin.models import User
from kvadmin.policies import Role

USERNAME = "admin"


def new_password() -> str:
    """Easy to copy by hand: no letters that look like digits."""
    letters = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
    return "-".join("".join(secrets.choice(letters) for _n in range(5)) for _group in range(4))


@dataclass
class CreateFirstAdministrator(Action[User]):
    """The user who can make all others, on a database that has none. A generated password has to be
    changed at the first sign-in; one that the operator chose need not be."""

    password: str
    generated: bool

    verb: ClassVar[str] = "user.create"
    permission: ClassVar[str] = "user.change"

    def check(self) -> None:
        if User.objects.exists():
            raise Conflict(_("There are users already."), code="not_first")

    def execute(self) -> User:
        user = User.objects.create_user(
            USERNAME,
            password=self.password,
            role=Role.ADMINISTRATOR,
            must_change_password=self.generated,
        )
        self.after = {"username": user.username, "role": user.role}
        return user
