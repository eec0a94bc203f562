from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from engines.vllm.spec import ServeSpec
from kvadmin.crypto import EncryptedTextField, HoldsSecrets, is_readable

if TYPE_CHECKING:
    from kvadmin.models import User


class ProfileQuerySet(models.QuerySet["Profile"]):
    def visible_to(self, user: User) -> ProfileQuerySet:
        return self if user.may("profile.view") else self.none()


class Profile(models.Model):
    """How to start a model. What is in force is its newest revision."""

    name = models.CharField(_("name"), max_length=100, unique=True)
    description = models.TextField(_("description"), blank=True, default="")
    archived_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ProfileQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("engines:profile_detail", args=[self.pk])

    @property
    def latest(self) -> Revision | None:
        return self.revisions.order_by("-number").first()


class Revision(HoldsSecrets):
    """One saved state of a profile; never changed after it is written.

    ``values`` maps a field's key (engines/vllm/fields.py) to its value; a key that is absent means
    vLLM's default. ``environment`` is plain variables, ``secret_environment`` a JSON object, encrypted.
    ``extra_arguments`` is text as the operator wrote it, split by shell rules when used.
    """

    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    model = models.CharField(_("model"), max_length=500)
    served_names = models.JSONField(_("served names"), default=list)
    values = models.JSONField(default=dict)
    gpus = models.CharField(_("GPUs to use"), max_length=100, blank=True, default="")
    environment = models.JSONField(default=dict)
    secret_environment = EncryptedTextField(blank=True, default="")
    extra_arguments = models.TextField(_("extra arguments"), blank=True, default="")
    note = models.CharField(_("what changed"), max_length=300, blank=True, default="")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["profile", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["profile", "number"], name="engines_revision_unique_number"),
        ]

    def __str__(self) -> str:
        return f"{self.profile.name} r{self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self.pk is not None:
            raise TypeError("A revision is immutable: save a new one.")
        super().save(*args, **kwargs)

    @property
    def author(self) -> str:
        return self.created_by.get_username() if self.created_by is not None else "kvadmin"

    @property
    def secrets(self) -> dict[str, str]:
        return json.loads(self.secret_environment) if self.secret_environment else {}

    @property
    def spec(self) -> ServeSpec:
        """What to start, with secrets: for building a command or an environment, never for a page."""
        return self._spec_with(self.secrets)

    @property
    def shown_spec(self) -> ServeSpec:
        """For pages, which mask it: without its secrets where the data key is lost. Never for a start."""
        return self._spec_with(self.readable_secrets)

    @property
    def readable_secrets(self) -> dict[str, str]:
        """The secrets, none where the data key is lost."""
        return self.secrets if is_readable(self, "secret_environment") else {}

    def _spec_with(self, secrets: dict[str, str]) -> ServeSpec:
        return ServeSpec(
            model=self.model,
            served_names=tuple(self.served_names),
            values=dict(self.values),
            gpus=self.gpus,
            environment=dict(self.environment),
            secrets=secrets,
            extra_arguments=self.extra_arguments,
        )

    @property
    def served_name(self) -> str:
        """The name callers use: the first served name, or the model itself."""
        return self.served_names[0] if self.served_names else self.model
