from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from django.utils import timezone
from django.utils.translation import gettext as _

from kvadmin import policies
from kvadmin.actions.base import Action, Denied, Invalid
from kvadmin.crypto import digest, new_secret
from kvadmin.models import ManagementToken, User
from kvadmin.models.token import TokenScope

#: how many usable tokens one person may hold: more is a script that makes one per run
MOST_USABLE = 50
LONGEST = timedelta(days=3650)


@dataclass(frozen=True)
class IssuedToken:
    """The stored token, and the whole text that its holder has to keep: shown this once."""

    token: ManagementToken
    secret: str


@dataclass
class IssueToken(Action[IssuedToken]):
    """Make a management token for oneself; kvadmin itself (the command) makes them for anybody."""

    user: User
    name: str
    scope: str = TokenScope.READ
    expires_at: datetime | None = None

    verb: ClassVar[str] = "token.issue"
    permission: ClassVar[str] = "token.own"

    _made: ManagementToken | None = None

    def subject(self) -> ManagementToken | None:
        return self._made

    def authorize(self) -> None:
        super().authorize()
        if self.actor.user is not None and not policies.allows(self.actor.user, self.permission, self.user):
            raise Denied(_("A token can only be made for yourself."), code="permission_denied")

    def check(self) -> None:
        self.name = self.name.strip()
        errors: dict[str, list[str]] = {}
        if not self.name or len(self.name) > 100:
            errors["name"] = [_("Give the token a name of 1 to 100 characters, such as what will use it.")]
        if self.scope not in TokenScope.values:
            errors["scope"] = [_("The scope is “read” or “write”.")]
        if self.expires_at is not None:
            if self.expires_at <= timezone.now():
                errors["expires_at"] = [_("The token would expire at once: choose a time to come.")]
            elif self.expires_at > timezone.now() + LONGEST:
                errors["expires_at"] = [_("Choose a time within ten years, or none.")]
        if errors:
            raise Invalid(next(iter(errors.values()))[0], errors=errors, field=next(iter(errors)))
        if not self.user.is_active:
            raise Invalid(
                _("The account %(name)s is disabled.") % {"name": self.user.username},
                code="user_disabled",
                field="user",
            )
        if ManagementToken.objects.usable().filter(user=self.user).count() >= MOST_USABLE:
            raise Invalid(
                _("There are %(most)d usable tokens already.") % {"most": MOST_USABLE},
                code="too_many_tokens",
                remedy=_("Revoke those that nothing uses."),
            )

    def execute(self) -> IssuedToken:
        secret = new_secret()
        self._made = ManagementToken.objects.create(
            user=self.user,
            name=self.name,
            public_id=secrets.token_hex(8),
            digest=digest(secret),
            scope=self.scope,
            expires_at=self.expires_at,
        )
        self.after = {
            "user": self.user.username,
            "name": self.name,
            "scope": str(self.scope),
            "expires_at": self.expires_at.isoformat() if self.expires_at else None,
        }
        return IssuedToken(self._made, f"{ManagementToken.PREFIX}{self._made.public_id}_{secret}")
