from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from kvadmin.actions import Actor


class AuditEventQuerySet(models.QuerySet["AuditEvent"]):
    def record(
        self,
        *,
        actor: Actor,
        verb: str,
        subject: models.Model | None,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
    ) -> AuditEvent:
        """Write one row. ``before`` and ``after`` must hold no secret; the caller sees to that."""
        return self.create(
            actor=actor.user,
            actor_name=actor.name,
            source=actor.source,
            ip=actor.ip,
            token_id=actor.token_id,
            verb=verb,
            subject_type=subject._meta.label_lower if subject is not None else "",
            subject_id=str(subject.pk) if subject is not None else "",
            subject_name=str(subject)[:200] if subject is not None else "",
            before=before or {},
            after=after or {},
        )


class AuditEvent(models.Model):
    """Who did what, on what, from where. Names are copied: the row outlives what it speaks of."""

    at = models.DateTimeField(_("time"), auto_now_add=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    actor_name = models.CharField(_("who"), max_length=150)
    source = models.CharField(_("from"), max_length=10)
    ip = models.GenericIPAddressField(_("address"), null=True)
    token_id = models.BigIntegerField(null=True)
    verb = models.CharField(_("what"), max_length=60)
    subject_type = models.CharField(max_length=60, blank=True)
    subject_id = models.CharField(max_length=60, blank=True)
    subject_name = models.CharField(_("on what"), max_length=200, blank=True)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)

    objects = AuditEventQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["subject_type", "subject_id"], name="kvadmin_audit_subject"),
            models.Index(fields=["at"], name="kvadmin_audit_at"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.verb} {self.subject_name}".strip()
