from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext as _

from kvadmin.actions import Action, Conflict
from kvadmin.actions.mistakes import Mistakes
from routes import keyformat
from routes.actions.key_input import audited, bounds_of, checked_bounds
from routes.models import Business, Key

#: how many keys that are not revoked one business may have: more is a script that makes one per run
MOST_LIVING = 1000


@dataclass(frozen=True)
class IssuedKey:
    """The stored key, and the text that its holder sends: it exists here only and is shown this once."""

    key: Key
    secret: str = field(repr=False)


def refuse_too_many(business: Business) -> None:
    if business.keys.living().count() >= MOST_LIVING:
        raise Conflict(
            _("%(business)s has %(most)d keys already.") % {"business": business.name, "most": MOST_LIVING},
            code="too_many_keys",
            remedy=_("Revoke those that nothing uses."),
        )


def make_key(business: Business, bounds: dict[str, Any], **more: Any) -> IssuedKey:
    public_id, secret = keyformat.new_key()
    key = Key.objects.create(
        business=business,
        public_id=public_id,
        digest=keyformat.digest(secret, settings.KVADMIN_PEPPER),
        **bounds,
        **more,
    )
    return IssuedKey(key, secret)


@dataclass
class IssueKey(Action[IssuedKey]):
    """A key for a business, by an owner of its team. ``models`` are names of routes, None is all; a limit
    of None is none. ``addresses`` are addresses and networks, none means from everywhere.
    """

    business: Business
    name: str
    models: Sequence[str] | None = None
    expires_at: datetime | None = None
    addresses: Sequence[str] = ()
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    monthly_tokens: int | None = None

    verb: ClassVar[str] = "key.issue"
    permission: ClassVar[str] = "key.change"

    _made: Key | None = field(default=None, init=False, repr=False)

    def subject(self) -> models.Model:
        return self._made or self.business

    def check(self) -> None:
        mistakes = Mistakes()
        self._bounds = checked_bounds(bounds_of(self), mistakes)
        mistakes.refuse()
        refuse_too_many(self.business)

    def execute(self) -> IssuedKey:
        issued = make_key(self.business, self._bounds, created_by=self.actor.user)
        self._made = issued.key
        self.after = {"business": self.business.name, "key": issued.key.masked, **audited(self._bounds)}
        return issued
