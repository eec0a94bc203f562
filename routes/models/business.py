from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from kvadmin.models import Team

if TYPE_CHECKING:
    from kvadmin.models import User


class BusinessQuerySet(models.QuerySet["Business"]):
    def visible_to(self, user: User) -> BusinessQuerySet:
        return self.filter(team__in=Team.objects.visible_to(user))

    def owned_by(self, user: User) -> BusinessQuerySet:
        return self.filter(team__in=Team.objects.owned_by(user))


class Business(models.Model):
    """What keys are issued for: one application or service of a team."""

    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="businesses")
    name = models.CharField(_("name"), max_length=100)
    description = models.CharField(_("description"), max_length=500, blank=True, default="")
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    objects = BusinessQuerySet.as_manager()

    class Meta:
        ordering = ["team", "name"]
        verbose_name_plural = "businesses"
        constraints = [
            models.UniqueConstraint(fields=["team", "name"], name="routes_business_unique_name"),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return f"{reverse('routes:team_detail', args=[self.team_id])}#business-{self.pk}"

    @property
    def owning_team_id(self) -> int:
        return self.team_id
