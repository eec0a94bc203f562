from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from kvadmin import policies
from kvadmin.actions import Action, Denied, Invalid
from kvadmin.actions.mistakes import Mistakes
from kvadmin.models import Team
from routes.actions.business_input import check_business, picture
from routes.models import Business


@dataclass
class ChangeBusiness(Action[Business]):
    """Another name, description or team; None leaves one as it is. Its keys go along to the other team,
    which the actor has to own as well.
    """

    business: Business
    name: str | None = None
    description: str | None = None
    team: Team | None = None

    verb: ClassVar[str] = "business.change"
    permission: ClassVar[str] = "business.change"

    def subject(self) -> Business:
        return self.business

    def authorize(self) -> None:
        super().authorize()
        user = self.actor.user
        if (
            self.team is not None
            and user is not None
            and not policies.allows(user, self.permission, self.team)
        ):
            raise Denied(
                _("You do not own the team %(team)s.") % {"team": self.team.name},
                code="permission_denied",
                remedy=policies.whom_to_ask(self.permission),
            )

    def check(self) -> None:
        business = self.business
        name = business.name if self.name is None else self.name.strip()
        description = business.description if self.description is None else self.description.strip()
        mistakes = Mistakes()
        check_business(mistakes, self.team or business.team, name, description, business.pk)
        mistakes.refuse()
        self._wanted = {"name": name, "description": description, "team": self.team or business.team}

    def execute(self) -> Business:
        business = Business.objects.select_for_update().get(pk=self.business.pk)
        self.before = picture(business)
        for name, value in self._wanted.items():
            setattr(business, name, value)
        self.after = picture(business)
        self.changed = self.before != self.after
        if self.changed:
            try:
                with transaction.atomic():
                    business.save(update_fields=[*self._wanted])
            except IntegrityError:
                raise Invalid(_("The team has a business of this name already."), field="name") from None
        self.business = business
        return business
