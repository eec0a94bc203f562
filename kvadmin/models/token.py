from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class TokenScope(models.TextChoices):
    READ = "read", _("Read")
    WRITE = "write", _("Read and write")


class ManagementTokenQuerySet(models.QuerySet["ManagementToken"]):
    def usable(self) -> ManagementTokenQuerySet:
        return self.filter(revoked_at=None).filter(
            models.Q(expires_at=None) | models.Q(expires_at__gt=timezone.now())
        )


class ManagementToken(models.Model):
    """A credential for the management API. Only a keyed digest of its secret is stored.

    The token that a person holds is ``kvm_<public_id>_<secret>``.
    """

    PREFIX = "kvm_"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="management_tokens"
    )
    name = models.CharField(_("name"), max_length=100)
    public_id = models.CharField(max_length=16, unique=True)
    digest = models.CharField(max_length=64)
    scope = models.CharField(_("scope"), max_length=10, choices=TokenScope, default=TokenScope.READ)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    last_used_at = models.DateTimeField(_("last used"), null=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True)

    objects = ManagementTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(scope__in=TokenScope.values), name="kvadmin_token_scope_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.PREFIX}{self.public_id}…)"

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()
