"""Choices of the engines app, with their tones and the state table of an engine."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from kvadmin.choices import TonedChoices


class HostKind(models.TextChoices):
    SSH = "ssh", _("Over SSH")
    LOCAL = "local", _("This machine")


class HostAuth(models.TextChoices):
    KEY = "key", _("Private key")
    PASSWORD = "password", _("Password")
    BOTH = "both", _("Private key and password")
    NONE = "none", _("None (this machine)")

    @property
    def by_key(self) -> bool:
        return self in {HostAuth.KEY, HostAuth.BOTH}

    @property
    def by_password(self) -> bool:
        return self in {HostAuth.PASSWORD, HostAuth.BOTH}


class HostState(TonedChoices):
    NEW = "new", _("Not contacted yet")
    CONFIRM = "confirm", _("Host key to confirm")
    ONLINE = "online", _("Online")
    UNREACHABLE = "unreachable", _("Unreachable")
    REFUSED = "refused", _("Sign-in refused")
    BLOCKED = "blocked", _("Host key changed")

    @classmethod
    def _tones(cls) -> dict[str, str]:
        return {
            "new": "off",
            "confirm": "warn",
            "online": "ok",
            "unreachable": "warn",
            "refused": "bad",
            "blocked": "bad",
        }


class DesiredState(models.TextChoices):
    STOPPED = "stopped", _("Stopped")
    RUNNING = "running", _("Running")


class EngineState(TonedChoices):
    STOPPED = "stopped", _("Stopped")
    STARTING = "starting", _("Starting")
    LOADING = "loading", _("Loading")
    READY = "ready", _("Ready")
    DRAINING = "draining", _("Draining")
    STOPPING = "stopping", _("Stopping")
    FAILED = "failed", _("Failed")
    UNREACHABLE = "unreachable", _("Unreachable")

    @classmethod
    def _tones(cls) -> dict[str, str]:
        return {
            "stopped": "off",
            "starting": "busy",
            "loading": "busy",
            "ready": "ok",
            "draining": "warn",
            "stopping": "busy",
            "failed": "bad",
            "unreachable": "warn",
        }


class OperationKind(models.TextChoices):
    PROBE = "probe", _("Probe")
    PROVISION = "provision", _("Provision vLLM")
    DISCOVER = "discover", _("Discover engines")
    START = "start", _("Start")
    STOP = "stop", _("Stop")
    DRAIN = "drain", _("Drain")
    RESTART = "restart", _("Restart")


class OperationState(TonedChoices):
    PENDING = "pending", _("Waiting")
    RUNNING = "running", _("Running")
    SUCCEEDED = "succeeded", _("Done")
    FAILED = "failed", _("Failed")
    CANCELLED = "cancelled", _("Cancelled")

    @classmethod
    def _tones(cls) -> dict[str, str]:
        return {
            "pending": "off",
            "running": "busy",
            "succeeded": "ok",
            "failed": "bad",
            "cancelled": "off",
        }


OPERATION_ACTIVE = (OperationState.PENDING, OperationState.RUNNING)


class StepState(TonedChoices):
    PENDING = "pending", _("Waiting")
    RUNNING = "running", _("Running")
    DONE = "done", _("Done")
    FAILED = "failed", _("Failed")
    SKIPPED = "skipped", _("Skipped")

    @classmethod
    def _tones(cls) -> dict[str, str]:
        return {"pending": "off", "running": "busy", "done": "ok", "failed": "bad"}


class Launcher(models.TextChoices):
    SYSTEMD = "systemd", _("systemd user unit")
    SESSION = "session", _("Detached session")
    ADOPTED = "adopted", _("Adopted")
