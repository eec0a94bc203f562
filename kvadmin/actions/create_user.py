from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import models
from django.utils.translation import gettext as _

from kvadmin.accounts.passwords import one_time_password
from kvadmin.actions.base import Action, Invalid
from kvadmin.models import User
from kvadmin.policies import Role


@dataclass(frozen=True)
class NewUser:
    """The password exists here only: it is shown once and must be changed at the first sign-in."""

    user: User
    password: str


def email_errors(email: str, *, besides: User | None = None) -> list[str]:
    """What is wrong with an address; empty is fine."""
    if not email:
        return []
    try:
        validate_email(email)
    except ValidationError:
        return [_("This is not an email address. Example: ada@example.com.")]
    others = User.objects.filter(email__iexact=email)
    if besides is not None:
        others = others.exclude(pk=besides.pk)
    return [_("Another user has this email address.")] if others.exists() else []


@dataclass
class CreateUser(Action[NewUser]):
    """A person who may sign in, with a one-time password."""

    username: str
    role: str = Role.VIEWER
    name: str = ""
    email: str = ""

    verb: ClassVar[str] = "user.create"
    permission: ClassVar[str] = "user.change"

    def __post_init__(self) -> None:
        self.username = User.normalize_username(self.username.strip())
        self.email = self.email.strip()
        self._user: User | None = None

    def subject(self) -> models.Model | None:
        return self._user

    def check(self) -> None:
        errors: dict[str, list[str]] = {}
        try:
            User._meta.get_field("username").clean(self.username, None)
        except ValidationError:
            errors["username"] = [
                _("Use letters, digits and . + - _ @ for the user name, at most 150 characters.")
            ]
        else:
            if User.objects.filter(username__iexact=self.username).exists():
                errors["username"] = [_("Another user has this name.")]
        if self.role not in Role.values:
            errors["role"] = [_("Choose one of the roles.")]
        if found := email_errors(self.email):
            errors["email"] = found
        if errors:
            raise Invalid(_("The user was not created."), errors=errors)

    def execute(self) -> NewUser:
        password = one_time_password()
        self._user = User.objects.create_user(
            self.username,
            email=self.email,
            password=password,
            role=self.role,
            first_name=self.name.strip()[:150],
            must_change_password=True,
        )
        self.after = {"username": self.username, "role": self.role, "email": self.email}
        return NewUser(self._user, password)
