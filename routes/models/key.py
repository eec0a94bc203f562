from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from kvadmin.models import Team
from routes import keyformat
from routes.choices import KeyState
from routes.models.business import Business

if TYPE_CHECKING:
    from kvadmin.models import User

#: from when on a key's page says that it expires soon
EXPIRES_SOON = timedelta(days=14)
#: how long a replaced key has to have been unused before it counts as safe to remove
QUIET = timedelta(days=1)


class KeyQuerySet(models.QuerySet["Key"]):
    def visible_to(self, user: User) -> KeyQuerySet:
        return self.filter(business__team__in=Team.objects.visible_to(user))

    def owned_by(self, user: User) -> KeyQuerySet:
        return self.filter(business__team__in=Team.objects.owned_by(user))

    def living(self) -> KeyQuerySet:
        """Keys that work, or that enabling or another expiry would make work: all but the ended ones."""
        return self.filter(revoked_at=None).filter(
            models.Q(overlap_ends_at=None) | models.Q(overlap_ends_at__gt=timezone.now())
        )

    def usable(self) -> KeyQuerySet:
        """Keys that the gateway takes now."""
        return (
            self.living()
            .filter(disabled_at=None)
            .filter(models.Q(expires_at=None) | models.Q(expires_at__gt=timezone.now()))
        )

    def expiring_soon(self) -> KeyQuerySet:
        """Usable keys that end within ``EXPIRES_SOON`` and have no successor yet."""
        return self.usable().filter(expires_at__lte=timezone.now() + EXPIRES_SOON, overlap_ends_at=None)


class Key(models.Model):
    """A gateway credential. Only the keyed digest of its text is stored (routes/keyformat.py).

    ``models`` lists the names of routes that it may call, None is all. A rotated key keeps working until
    ``overlap_ends_at``; its ``successor`` points back to it by ``predecessor``. A key that was imported
    has no public id; ``hint`` holds its last four characters. Limits are None where there is none.
    """

    business = models.ForeignKey(Business, on_delete=models.CASCADE, related_name="keys")
    name = models.CharField(_("name"), max_length=100)
    public_id = models.CharField(max_length=keyformat.PUBLIC_LENGTH, unique=True, null=True, editable=False)  # noqa: DJ001
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    hint = models.CharField(max_length=4, blank=True, default="", editable=False)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    addresses = ArrayField(models.TextField(), default=list, blank=True, verbose_name=_("allowed addresses"))
    requests_per_minute = models.PositiveIntegerField(_("requests per minute"), null=True, blank=True)
    tokens_per_minute = models.PositiveIntegerField(_("tokens per minute"), null=True, blank=True)
    concurrent = models.PositiveIntegerField(_("requests at once"), null=True, blank=True)
    monthly_tokens = models.PositiveBigIntegerField(_("tokens per month"), null=True, blank=True)
    disabled_at = models.DateTimeField(_("disabled"), null=True, editable=False)
    revoked_at = models.DateTimeField(_("revoked"), null=True, editable=False)
    predecessor = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="successors")
    overlap_ends_at = models.DateTimeField(_("works until"), null=True, editable=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, editable=False)
    last_used_ip = models.GenericIPAddressField(_("last used from"), null=True, editable=False)
    # the last one: from here on the name means this field
    models = ArrayField(models.TextField(), null=True, blank=True, verbose_name=_("models"))

    objects = KeyQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(
                fields=["expires_at"],
                condition=models.Q(revoked_at=None, expires_at__isnull=False),
                name="routes_key_expiring",
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(public_id__isnull=False) | ~models.Q(hint=""),
                name="routes_key_imported_has_hint",
            ),
            models.CheckConstraint(
                condition=~models.Q(predecessor=models.F("id")), name="routes_key_not_own_predecessor"
            ),
            models.UniqueConstraint(
                fields=["predecessor"],
                condition=models.Q(revoked_at=None),
                name="routes_key_one_successor",
            ),
            *(
                models.CheckConstraint(
                    condition=models.Q(**{f"{field}__isnull": True}) | models.Q(**{f"{field}__gte": 1}),
                    name=f"routes_key_{field}_positive",
                )
                for field in ("requests_per_minute", "tokens_per_minute", "concurrent", "monthly_tokens")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.masked})"

    def get_absolute_url(self) -> str:
        return reverse("routes:key_detail", args=[self.pk])

    @property
    def owning_team_id(self) -> int:
        return self.business.team_id

    @property
    def masked(self) -> str:
        """How the key is shown: never enough to use it."""
        return keyformat.masked(self.public_id) if self.public_id else f"…{self.hint}"

    @property
    def imported(self) -> bool:
        return self.public_id is None

    @property
    def ends_at(self) -> datetime | None:
        """When it stops working by itself: the earlier of its expiry and the end of its overlap."""
        return min(filter(None, (self.expires_at, self.overlap_ends_at)), default=None)

    @property
    def state(self) -> KeyState:
        now = timezone.now()
        if self.revoked_at is not None:
            return KeyState.REVOKED
        if self.overlap_ends_at is not None and self.overlap_ends_at <= now:
            return KeyState.ROTATED
        if self.expires_at is not None and self.expires_at <= now:
            return KeyState.EXPIRED
        if self.disabled_at is not None:
            return KeyState.DISABLED
        return KeyState.ACTIVE if self.overlap_ends_at is None else KeyState.ROTATING

    @property
    def usable(self) -> bool:
        return self.state in {KeyState.ACTIVE, KeyState.ROTATING}

    @property
    def expires_soon(self) -> bool:
        return (
            self.state == KeyState.ACTIVE
            and self.expires_at is not None
            and self.expires_at <= timezone.now() + EXPIRES_SOON
        )

    @property
    def successor(self) -> Key | None:
        """The key that replaces it, unless that was revoked."""
        return next((key for key in self.successors.all() if key.revoked_at is None), None)

    @property
    def safe_to_remove(self) -> bool:
        """A replaced key whose successor is in use and that itself has been quiet for ``QUIET``."""
        if self.overlap_ends_at is None or self.revoked_at is not None:
            return False
        successor = self.successor
        if successor is None or successor.last_used_at is None:
            return False
        return self.last_used_at is None or self.last_used_at <= timezone.now() - QUIET
