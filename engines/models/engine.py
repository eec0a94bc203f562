from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from engines.choices import DesiredState, EngineState, Launcher
from engines.models.host import Host, VllmEnvironment
from engines.models.profile import Revision
from kvadmin.crypto import EncryptedTextField, HoldsSecrets, is_readable
from kvadmin.sentences import SentenceField

if TYPE_CHECKING:
    from engines.models.operation import Operation
    from kvadmin.models import User


class EngineQuerySet(models.QuerySet["Engine"]):
    def visible_to(self, user: User) -> EngineQuerySet:
        return self if user.may("engine.view") else self.none()

    def pollable(self) -> EngineQuerySet:
        """Engines whose /metrics should be read: those that serve, or did when last seen."""
        return self.filter(observed__in=[EngineState.READY, EngineState.DRAINING, EngineState.UNREACHABLE])


class Engine(HoldsSecrets):
    """One vLLM server: a revision on a host at a port, with a desired and an observed state.

    ``observed`` moves only by ``move``: compare-and-set plus a Transition row. ``seq`` grows with every
    visible change, so a page can ask for what changed since.
    """

    name = models.CharField(_("name"), max_length=100, unique=True)
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="engines")
    revision = models.ForeignKey(Revision, null=True, on_delete=models.PROTECT, related_name="engines")
    environment = models.ForeignKey(
        VllmEnvironment, null=True, blank=True, on_delete=models.PROTECT, related_name="engines"
    )
    port = models.PositiveIntegerField(_("port"))
    bind_address = models.CharField(_("bind address"), max_length=255, default="127.0.0.1")
    api_key = EncryptedTextField(blank=True, default="")
    keep_running = models.BooleanField(_("keep running"), default=False)
    desired = models.CharField(
        _("desired"), max_length=10, choices=DesiredState, default=DesiredState.STOPPED
    )
    observed = models.CharField(_("state"), max_length=12, choices=EngineState, default=EngineState.STOPPED)
    state_at = models.DateTimeField(default=timezone.now)
    reason_code = models.CharField(max_length=60, blank=True, default="")
    reason = SentenceField(blank=True, default="")
    served_names = models.JSONField(default=list)
    max_model_len = models.PositiveIntegerField(null=True)
    vllm_version = models.CharField(max_length=40, blank=True, default="")
    current_start = models.ForeignKey("EngineStart", null=True, on_delete=models.SET_NULL, related_name="+")
    polled_at = models.DateTimeField(null=True)
    answered_at = models.DateTimeField(null=True)
    seq = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = EngineQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["host", "port"], name="engines_engine_unique_port"),
            models.CheckConstraint(
                condition=models.Q(observed__in=EngineState.values),
                name="engines_engine_observed_known",
            ),
            models.CheckConstraint(
                condition=models.Q(port__gte=1, port__lte=65535), name="engines_engine_port_range"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("engines:engine_detail", args=[self.pk])

    @property
    def tone(self) -> str:
        return EngineState(self.observed).tone

    @property
    def base_url(self) -> str:
        """Where poller and gateway reach the engine, without a trailing slash and without /v1."""
        address = self.host.service_host
        if ":" in address and not address.startswith("["):
            address = f"[{address}]"
        return f"http://{address}:{self.port}"

    @property
    def readable_key(self) -> str:
        """Its API key, empty where the data key is lost."""
        return self.api_key if is_readable(self, "api_key") else ""

    @property
    def pending_changes(self) -> list[str]:
        """Settings in which the engine differs from its running start: what a restart would change."""
        start = self.current_start
        if start is None or start.ended_at is not None or start.launched_at is None:
            return []
        words = list(start.command)
        changed = []
        if start.revision_id != self.revision_id:
            changed.append("revision")
        if self.environment is not None and words and self.environment.executable not in {"", words[0]}:
            changed.append("environment")
        return changed

    def move(
        self,
        to: EngineState,
        *,
        only_from: tuple[EngineState, ...],
        reason_code: str = "",
        reason: str = "",
        start: EngineStart | None = None,
        operation: Operation | None = None,
    ) -> bool:
        """Compare-and-set the observed state; True if this call made the change.

        False when the engine was in none of ``only_from`` (somebody else moved it first) or in ``to``
        already. Writes the Transition row in the same transaction; refreshes this instance.
        """
        from engines.states import move_engine

        return move_engine(
            self,
            to,
            only_from=only_from,
            reason_code=reason_code,
            reason=reason,
            start=start,
            operation=operation,
        )

    move.alters_data = True  # type: ignore[attr-defined]


class EngineStart(models.Model):
    """One start of an engine: its own folder, log file and exit status on the host.

    ``marker`` is in the environment of every process of this start (KVADMIN_START). ``processes`` lists
    those seen at ready: [{"pid", "ticks", "name"}]. ``facts`` is what the log told (engines/vllm/log.py).
    ``ended_at`` is set once a look found none of its processes; ``given_up_at`` when they are to be ended.
    ``tries`` counts what kvadmin tried by itself in vain since then, ``tried_at`` is the last of it.
    """

    engine = models.ForeignKey(Engine, on_delete=models.CASCADE, related_name="starts")
    number = models.PositiveIntegerField()
    marker = models.UUIDField(default=uuid.uuid4, unique=True)
    revision = models.ForeignKey(Revision, null=True, on_delete=models.PROTECT, related_name="+")
    launcher = models.CharField(max_length=10, choices=Launcher, default=Launcher.SESSION)
    unit = models.CharField(max_length=120, blank=True, default="")
    directory = models.CharField(max_length=500, blank=True, default="")
    log_path = models.CharField(max_length=500, blank=True, default="")
    command = models.JSONField(default=list)
    boot_id = models.CharField(max_length=36, blank=True, default="")
    pid = models.PositiveIntegerField(null=True)
    start_ticks = models.BigIntegerField(null=True)
    processes = models.JSONField(default=list)
    vllm_version = models.CharField(max_length=40, blank=True, default="")
    facts = models.JSONField(default=dict)
    log_offset = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    launched_at = models.DateTimeField(null=True)
    ready_at = models.DateTimeField(null=True)
    given_up_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    tries = models.PositiveSmallIntegerField(default=0, db_default=0)
    tried_at = models.DateTimeField(null=True)
    exit_status = models.IntegerField(null=True)
    last_lines = models.TextField(blank=True, default="")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ["engine", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["engine", "number"], name="engines_start_unique_number"),
        ]

    def __str__(self) -> str:
        return f"{self.engine.name} start {self.number}"


class Transition(models.Model):
    """One change of an engine's observed state."""

    engine = models.ForeignKey(Engine, on_delete=models.CASCADE, related_name="transitions")
    start = models.ForeignKey(EngineStart, null=True, on_delete=models.SET_NULL, related_name="+")
    operation = models.ForeignKey("Operation", null=True, on_delete=models.SET_NULL, related_name="+")
    from_state = models.CharField(max_length=12, choices=EngineState)
    to_state = models.CharField(max_length=12, choices=EngineState)
    reason_code = models.CharField(max_length=60, blank=True, default="")
    reason = SentenceField(blank=True, default="")
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["engine", "-at"], name="engines_transition_engine")]

    def __str__(self) -> str:
        return f"{self.engine.name}: {self.from_state} -> {self.to_state}"
