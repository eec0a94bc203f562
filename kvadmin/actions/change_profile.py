from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext as _

from kvadmin.actions.base import Action, Invalid
from kvadmin.models import User
from kvadmin.models.user import Theme


@dataclass
class ChangeProfile(Action[User]):
    """One's own name, language ("" follows the browser) and theme."""

    user: User
    name: str
    language: str
    theme: str

    verb: ClassVar[str] = "account.change"
    permission: ClassVar[str] = "account.own"

    def subject(self) -> models.Model:
        return self.user

    def check(self) -> None:
        if self.language and self.language not in dict(settings.LANGUAGES):
            raise Invalid(_("Choose one of the languages."), field="language")
        if self.theme not in Theme.values:
            raise Invalid(_("Choose one of the themes."), field="theme")
        if len(self.name.strip()) > 150:
            raise Invalid(_("Use at most 150 characters for the name."), field="name")

    def execute(self) -> User:
        wanted = {"first_name": self.name.strip(), "language": self.language, "theme": self.theme}
        if self.name.strip() != self.user.get_full_name():
            wanted["last_name"] = ""
        else:
            del wanted["first_name"]
        for name, value in wanted.items():
            if getattr(self.user, name) != value:
                self.before[name] = getattr(self.user, name)
                self.after[name] = value
                setattr(self.user, name, value)
        self.user.save(update_fields=[*wanted])
        return self.user
