"""Archive a profile: it is no longer offered; its revisions stay."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import timezone
from django.utils.translation import gettext as _

from engines.models import Engine, Profile
from kvadmin.actions import Action, Conflict


@dataclass
class ArchiveProfile(Action[Profile]):
    """Refused (``profile_in_use``) while an engine has one of its revisions."""

    verb = "profile.archive"
    permission = "profile.change"

    profile: Profile

    def subject(self) -> Profile:
        return self.profile

    def check(self) -> None:
        if self.profile.archived_at is not None:
            raise Conflict(_("This profile is archived already."), code="profile_archived")
        self._refuse_while_used()

    def _refuse_while_used(self) -> None:
        names = list(Engine.objects.filter(revision__profile=self.profile).values_list("name", flat=True))
        if names:
            raise Conflict(
                _("Engines use this profile: %(engines)s.") % {"engines": ", ".join(names)},
                code="profile_in_use",
                remedy=_("Give them another profile or remove them first."),
            )

    def execute(self) -> Profile:
        # an engine may have been made since the check
        profile = Profile.objects.select_for_update().get(pk=self.profile.pk)
        self._refuse_while_used()
        profile.archived_at = timezone.now()
        profile.save(update_fields=["archived_at"])
        self.before, self.after = {"archived": False}, {"archived": True}
        return profile
