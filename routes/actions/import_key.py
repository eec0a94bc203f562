from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from django.conf import settings
from django.db import IntegrityError, models, transaction
from django.utils.translation import gettext as _

from kvadmin.actions import Action, Invalid
from kvadmin.actions.mistakes import Mistakes
from routes import keyformat
from routes.actions.issue_key import refuse_too_many
from routes.actions.key_input import audited, bounds_of, checked_bounds
from routes.models import Business, Key
from routes.strength import weaknesses


@dataclass
class ImportKey(Action[Key]):
    """Take over a secret that callers have already, so that a migration changes nothing for them.

    Only its digest and its last four characters are kept. One that is easy to guess, or that no header
    can carry, is refused with every reason. The bounds are those of IssueKey.
    """

    business: Business
    name: str
    secret: str = field(repr=False)
    models: Sequence[str] | None = None
    expires_at: datetime | None = None
    addresses: Sequence[str] = ()
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    monthly_tokens: int | None = None

    verb: ClassVar[str] = "key.import"
    permission: ClassVar[str] = "key.change"

    _made: Key | None = field(default=None, init=False, repr=False)

    def subject(self) -> models.Model:
        return self._made or self.business

    def check(self) -> None:
        mistakes = Mistakes()
        self._bounds = checked_bounds(bounds_of(self), mistakes)
        secret = self._plain()
        for reason in weaknesses(secret):
            mistakes.add("secret", reason.text(_))
        if "secret" in mistakes.errors:
            mistakes.add("secret", _("Issue a new key for this business instead."))
        elif self._known(secret).exists():
            mistakes.add("secret", _("This secret is a key here already."))
        mistakes.refuse()
        refuse_too_many(self.business)

    def _plain(self) -> str:
        """Without blanks and quotes around it, which callers do not send either."""
        return self.secret.strip().strip("\"'")

    def _known(self, secret: str) -> models.QuerySet[Key]:
        same = models.Q(digest=keyformat.digest(secret, settings.KVADMIN_PEPPER))
        public_id = keyformat.public_id(secret)
        return Key.objects.filter(same | models.Q(public_id=public_id) if public_id else same)

    def execute(self) -> Key:
        secret = self._plain()
        try:
            with transaction.atomic():
                self._made = Key.objects.create(
                    business=self.business,
                    public_id=keyformat.public_id(secret),
                    digest=keyformat.digest(secret, settings.KVADMIN_PEPPER),
                    hint=secret[-4:],
                    created_by=self.actor.user,
                    **self._bounds,
                )
        except IntegrityError:
            raise Invalid(_("This secret is a key here already."), field="secret") from None
        self.after = {"business": self.business.name, "key": self._made.masked, **audited(self._bounds)}
        return self._made
