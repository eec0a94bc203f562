from django.contrib.auth.models import AbstractUser
from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from kvadmin.policies import Role, allows


class Theme(models.TextChoices):
    SYSTEM = "system", _("As the device")
    LIGHT = "light", _("Light")
    DARK = "dark", _("Dark")


class User(AbstractUser):
    """A person who signs in. What they may do follows from the role (kvadmin.policies)."""

    role = models.CharField(_("role"), max_length=20, choices=Role, default=Role.VIEWER)
    language = models.CharField(_("language"), max_length=10, blank=True, default="")
    theme = models.CharField(_("theme"), max_length=10, choices=Theme, default=Theme.SYSTEM)
    must_change_password = models.BooleanField(_("must change password"), default=False)
    failed_sign_ins = models.PositiveIntegerField(default=0)
    locked_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["username"]
        constraints = [
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="kvadmin_user_role_known"),
        ]

    @property
    def is_locked(self) -> bool:
        """True while wrong passwords keep the account from signing in by password."""
        return self.locked_until is not None and self.locked_until > timezone.now()

    def get_absolute_url(self) -> str:
        return reverse("kvadmin:user_detail", args=[self.pk])

    def may(self, permission: str, subject: models.Model | None = None) -> bool:
        return allows(self, permission, subject)
