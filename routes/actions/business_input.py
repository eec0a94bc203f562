"""What the actions on businesses have in common."""

from __future__ import annotations

from django.utils.translation import gettext as _

from kvadmin.actions.mistakes import Mistakes
from kvadmin.models import Team
from routes.models import Business


def check_business(mistakes: Mistakes, team: Team, name: str, description: str, besides: int | None) -> None:
    if not name:
        mistakes.add("name", _("Give the business a name, such as what will call the models."))
    elif len(name) > 100:
        mistakes.add("name", _("Use at most 100 characters."))
    elif Business.objects.filter(team=team, name__iexact=name).exclude(pk=besides).exists():
        mistakes.add("name", _("The team has a business of this name already."))
    if len(description) > 500:
        mistakes.add("description", _("Use at most 500 characters."))


def picture(business: Business) -> dict[str, object]:
    return {"team": business.team.name, "name": business.name, "description": business.description}
