"""Choices of the routes app, with their tones."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from kvadmin.choices import TonedChoices


class KeyState(TonedChoices):
    """How a key stands now; worked out from its times, not stored."""

    ACTIVE = "active", _("Active")
    ROTATING = "rotating", _("Being replaced")
    ROTATED = "rotated", _("Replaced")
    DISABLED = "disabled", _("Disabled")
    EXPIRED = "expired", _("Expired")
    REVOKED = "revoked", _("Revoked")

    @classmethod
    def _tones(cls) -> dict[str, str]:
        return {"active": "ok", "rotating": "warn", "disabled": "warn", "expired": "bad"}


class Policy(models.TextChoices):
    PREFIX_AFFINITY = "prefix_affinity", _("Equal prompts to the same engine")
    LEAST_BUSY = "least_busy", _("Least busy engine")


class MaxTokensRule(models.TextChoices):
    REFUSE = "refuse", _("Refuse, and name both limits")
    CLAMP = "clamp", _("Lower to the limit")
    PASS = "pass", _("Pass on as it is")


class RouteState(TonedChoices):
    """Whether callers of a route get an answer; worked out from its targets."""

    SERVING = "serving", _("Serving")
    PARTLY = "partly", _("Partly serving")
    DRAINING = "draining", _("Draining")
    DOWN = "down", _("No target answers")
    EMPTY = "empty", _("No target")
    OFF = "off", _("Off")

    @classmethod
    def _tones(cls) -> dict[str, str]:
        return {"serving": "ok", "partly": "warn", "draining": "warn", "down": "bad", "empty": "bad"}
