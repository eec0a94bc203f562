from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from engines.choices import OPERATION_ACTIVE, OperationKind, OperationState, StepState
from engines.models.engine import Engine
from engines.models.host import Host
from kvadmin.sentences import SentenceField

if TYPE_CHECKING:
    from kvadmin.models import User


class OperationQuerySet(models.QuerySet["Operation"]):
    def visible_to(self, user: User) -> OperationQuerySet:
        return self if user.may("operation.view") else self.none()

    def active(self) -> OperationQuerySet:
        return self.filter(state__in=OPERATION_ACTIVE)

    def due(self) -> OperationQuerySet:
        """Active and past their next tick: what the runner (or, after a crash, reconcile) takes up."""
        return self.active().filter(next_tick_at__lte=timezone.now())


class Operation(models.Model):
    """One thing done to a host or an engine, in steps; see engines/operations/runner.py.

    ``parameters`` is the input without secrets; ``scratch`` what one step leaves for the next.
    At most one operation is active per engine, and one of a kind per host without an engine.
    """

    uuid = models.UUIDField(default=uuid.uuid4, unique=True)
    kind = models.CharField(_("kind"), max_length=12, choices=OperationKind)
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="operations")
    engine = models.ForeignKey(Engine, null=True, on_delete=models.CASCADE, related_name="operations")
    batch = models.UUIDField(null=True, db_index=True)
    state = models.CharField(
        _("state"), max_length=10, choices=OperationState, default=OperationState.PENDING
    )
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    source = models.CharField(max_length=10, default="system")
    parameters = models.JSONField(default=dict)
    scratch = models.JSONField(default=dict)
    progress = models.FloatField(null=True)
    progress_text = SentenceField(blank=True, default="")
    code = models.CharField(max_length=60, blank=True, default="")
    message = SentenceField(blank=True, default="")
    remedy = SentenceField(blank=True, default="")
    cancel_requested = models.BooleanField(default=False)
    next_tick_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = OperationQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["engine"],
                condition=models.Q(state__in=OPERATION_ACTIVE, engine__isnull=False),
                name="engines_operation_one_active_per_engine",
            ),
            models.UniqueConstraint(
                fields=["host", "kind"],
                condition=models.Q(state__in=OPERATION_ACTIVE, engine__isnull=True),
                name="engines_operation_one_active_per_host_kind",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_tick_at"],
                condition=models.Q(state__in=OPERATION_ACTIVE),
                name="engines_operation_due",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.engine or self.host}"

    def get_absolute_url(self) -> str:
        return reverse("engines:operation_detail", args=[self.uuid])

    @property
    def is_active(self) -> bool:
        return self.state in OPERATION_ACTIVE

    @property
    def tone(self) -> str:
        return OperationState(self.state).tone

    @property
    def duration(self) -> timedelta | None:
        """How long it has run, or ran; None before it began."""
        if self.started_at is None:
            return None
        return (self.finished_at or timezone.now()) - self.started_at


class OperationStep(models.Model):
    """One step of an operation. ``detail`` is a sentence for people about what was found or done."""

    operation = models.ForeignKey(Operation, on_delete=models.CASCADE, related_name="steps")
    position = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=40)
    state = models.CharField(max_length=10, choices=StepState, default=StepState.PENDING)
    detail = SentenceField(blank=True, default="")
    attempts = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["operation", "position"]
        constraints = [
            models.UniqueConstraint(fields=["operation", "position"], name="engines_step_unique_position"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def label(self) -> str:
        """The step's name for people, as its flow words it."""
        from engines.operations.base import flow_for

        for step in flow_for(self.operation.kind).steps:
            if step.name == self.name:
                return str(step.label)
        return self.name

    @property
    def tone(self) -> str:
        return StepState(self.state).tone

    @property
    def duration(self) -> timedelta | None:
        if self.started_at is None:
            return None
        return (self.finished_at or timezone.now()) - self.started_at


class OperationLine(models.Model):
    """One line of an operation's log; the id orders them and lets a stream resume."""

    operation = models.ForeignKey(Operation, on_delete=models.CASCADE, related_name="lines")
    at = models.DateTimeField(default=timezone.now)
    text = SentenceField()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.text
