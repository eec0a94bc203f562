from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from engines.choices import EngineState
from engines.models import Engine
from kvadmin.crypto import EncryptedTextField, HoldsSecrets
from routes.choices import MaxTokensRule, Policy, RouteState
from routes.serving import served_name, target_state

if TYPE_CHECKING:
    from kvadmin.models import User


class RouteQuerySet(models.QuerySet["Route"]):
    def visible_to(self, user: User) -> RouteQuerySet:
        return self if user.may("route.view") else self.none()

    def with_targets(self) -> RouteQuerySet:
        return self.prefetch_related("targets__engine__host").select_related("fallback")


class Route(models.Model):
    """A model name that callers use, and how its requests are passed on.

    ``max_tokens`` is the most that a request may ask for, None for no limit of the route's. Times are in
    seconds. ``price`` is for the eye only: {"currency": "EUR", "prompt": 0.2, "cached": 0.05,
    "completion": 0.6}, each for a million tokens. ``auto_join`` lets an engine that serves this name
    become a target when it is ready.
    """

    name = models.CharField(_("model name"), max_length=200, unique=True)
    aliases = ArrayField(models.TextField(), default=list, blank=True, verbose_name=_("aliases"))
    description = models.CharField(_("description"), max_length=1000, blank=True, default="")
    enabled = models.BooleanField(_("on"), default=True)
    policy = models.CharField(
        _("choice of target"), max_length=20, choices=Policy, default=Policy.PREFIX_AFFINITY
    )
    max_tokens = models.PositiveIntegerField(_("max tokens"), null=True, blank=True)
    max_tokens_rule = models.CharField(
        _("when more is asked for"), max_length=10, choices=MaxTokensRule, default=MaxTokensRule.REFUSE
    )
    connect_s = models.FloatField(_("connect"), default=5.0)
    first_byte_s = models.FloatField(_("first byte"), default=120.0)
    idle_s = models.FloatField(_("between bytes"), default=60.0)
    total_s = models.FloatField(_("in total"), default=3600.0)
    fallback = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="taken_over",
        verbose_name=_("fallback route"),
    )
    continuous_usage = models.BooleanField(_("count tokens with every event"), default=False)
    auto_join = models.BooleanField(_("engines join by themselves"), default=False)
    context_length = models.PositiveIntegerField(_("context length"), null=True, blank=True)
    price = models.JSONField(_("price"), null=True, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    objects = RouteQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(policy__in=Policy.values), name="routes_route_policy_known"
            ),
            models.CheckConstraint(
                condition=models.Q(max_tokens_rule__in=MaxTokensRule.values),
                name="routes_route_max_tokens_rule_known",
            ),
            models.CheckConstraint(
                condition=models.Q(max_tokens__isnull=True) | models.Q(max_tokens__gte=1),
                name="routes_route_max_tokens_positive",
            ),
            models.CheckConstraint(
                condition=models.Q(connect_s__gt=0, first_byte_s__gt=0, idle_s__gt=0, total_s__gt=0),
                name="routes_route_times_positive",
            ),
            models.CheckConstraint(
                condition=models.Q(fallback__isnull=True) | ~models.Q(fallback=models.F("id")),
                name="routes_route_not_own_fallback",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("routes:route_detail", args=[self.pk])

    @property
    def names(self) -> list[str]:
        return [self.name, *self.aliases]

    @property
    def context(self) -> int | None:
        """Tokens of the longest request that every target takes: as set, else the least of the engines'."""
        if self.context_length is not None:
            return self.context_length
        lengths = [
            target.engine.max_model_len
            for target in self.targets.all()
            if target.enabled and target.engine is not None and target.engine.max_model_len
        ]
        return min(lengths, default=None)

    @property
    def state(self) -> RouteState:
        """By what is known here; the gateway itself also takes targets out that do not answer it."""
        if not self.enabled:
            return RouteState.OFF
        targets = [target for target in self.targets.all() if target.enabled]
        if not targets:
            return RouteState.EMPTY
        ready = [target for target in targets if target.takes_requests]
        if len(ready) == len(targets):
            return RouteState.SERVING
        if ready:
            return RouteState.PARTLY
        if any(target.engine.observed == EngineState.DRAINING for target in targets if target.engine):
            return RouteState.DRAINING
        return RouteState.DOWN


class Target(HoldsSecrets):
    """An engine of ours or an outside URL that serves a route; exactly one of the two.

    ``base_url`` has no trailing slash and no /v1. ``model`` is the name that the target itself goes by;
    empty means the engine's first served name, or the route's. An outside target without a key has an
    empty ``api_key``.
    """

    route = models.ForeignKey(Route, on_delete=models.CASCADE, related_name="targets")
    engine = models.ForeignKey(
        Engine, null=True, blank=True, on_delete=models.CASCADE, related_name="targets"
    )
    base_url = models.CharField(_("base URL"), max_length=500, blank=True, default="")
    api_key = EncryptedTextField(_("API key"), blank=True, default="")
    model = models.CharField(_("model name there"), max_length=300, blank=True, default="")
    weight = models.PositiveIntegerField(_("weight"), default=1)
    enabled = models.BooleanField(_("on"), default=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(engine__isnull=False, base_url="")
                | (models.Q(engine__isnull=True) & ~models.Q(base_url="")),
                name="routes_target_engine_or_url",
            ),
            models.CheckConstraint(
                condition=models.Q(weight__gte=1, weight__lte=1000), name="routes_target_weight_range"
            ),
            models.UniqueConstraint(fields=["route", "engine"], name="routes_target_unique_engine"),
        ]

    def __str__(self) -> str:
        return self.engine.name if self.engine is not None else self.base_url

    @property
    def served_name(self) -> str:
        """The model name that is sent to the target; the route's where the engine goes by it too."""
        return served_name(
            self.model, self.engine.served_names if self.engine is not None else (), self.route.name
        )

    @property
    def takes_requests(self) -> bool:
        """Whether the gateway sends it new requests: an outside one is tried, an engine that is not known to
        be down too."""
        return self.enabled and (self.engine is None or target_state(self.engine.observed) == "ready")
