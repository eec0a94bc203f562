from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from kvadmin.policies import TeamRole

if TYPE_CHECKING:
    from kvadmin.models.user import User


class TeamQuerySet(models.QuerySet["Team"]):
    def visible_to(self, user: User) -> TeamQuerySet:
        """A person's own teams; all for whoever looks after the gateway."""
        if user.may("team.view_all"):
            return self
        return self.filter(pk__in=Membership.objects.filter(user=user).values("team"))

    def owned_by(self, user: User) -> TeamQuerySet:
        """Teams whose keys the user may issue and change."""
        if user.may("team.change_all"):
            return self
        owned = Membership.objects.filter(user=user, role=TeamRole.OWNER)
        return self.filter(pk__in=owned.values("team"))


class Team(models.Model):
    """People who own businesses and their keys: owners change them, members look."""

    name = models.CharField(_("name"), max_length=100, unique=True)
    users = models.ManyToManyField(
        settings.AUTH_USER_MODEL, through="kvadmin.Membership", related_name="teams"
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    objects = TeamQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("routes:team_detail", args=[self.pk])

    @property
    def owning_team_id(self) -> int:
        """Whose owners and members may do what on this object; see kvadmin.policies."""
        return self.pk


class Membership(models.Model):
    """One person in one team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(_("role"), max_length=10, choices=TeamRole, default=TeamRole.MEMBER)

    class Meta:
        ordering = ["team", "-role", "user"]
        constraints = [
            models.UniqueConstraint(fields=["team", "user"], name="kvadmin_membership_unique_user"),
            models.CheckConstraint(
                condition=models.Q(role__in=TeamRole.values), name="kvadmin_membership_role_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} ({self.get_role_display()})"
