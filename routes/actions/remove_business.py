from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.utils.translation import gettext as _

from kvadmin.actions import Action, Conflict
from routes.actions.business_input import picture
from routes.models import Business


@dataclass
class RemoveBusiness(Action[None]):
    """With its ended keys, which gateways then know as little as any other text; refused while one could
    still work. Its usage stays counted, without its name."""

    business: Business

    verb: ClassVar[str] = "business.remove"
    permission: ClassVar[str] = "business.change"

    def subject(self) -> Business:
        return self.business

    def execute(self) -> None:
        business = Business.objects.select_for_update().get(pk=self.business.pk)
        living = business.keys.living().count()
        if living:
            raise Conflict(
                _("%(business)s still has keys that are not revoked (%(count)d).")
                % {"business": business.name, "count": living},
                code="business_has_keys",
                remedy=_("Revoke them first."),
            )
        self.before = {**picture(business), "keys": [key.masked for key in business.keys.all()]}
        business.delete()
