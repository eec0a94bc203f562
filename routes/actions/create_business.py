from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.db import IntegrityError, models, transaction
from django.utils.translation import gettext as _

from kvadmin.actions import Action, Invalid
from kvadmin.actions.mistakes import Mistakes
from kvadmin.models import Team
from routes.actions.business_input import check_business, picture
from routes.models import Business


@dataclass
class CreateBusiness(Action[Business]):
    """Something of a team's that will hold keys."""

    team: Team
    name: str
    description: str = ""

    verb: ClassVar[str] = "business.create"
    permission: ClassVar[str] = "business.change"

    _made: Business | None = None

    def subject(self) -> models.Model:
        return self._made or self.team

    def check(self) -> None:
        self.name, self.description = self.name.strip(), self.description.strip()
        mistakes = Mistakes()
        check_business(mistakes, self.team, self.name, self.description, None)
        mistakes.refuse()

    def execute(self) -> Business:
        try:
            with transaction.atomic():
                self._made = Business.objects.create(
                    team=self.team, name=self.name, description=self.description
                )
        except IntegrityError:
            raise Invalid(_("The team has a business of this name already."), field="name") from None
        self.after = picture(self._made)
        return self._made
