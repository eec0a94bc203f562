from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from engines.choices import HostAuth, HostKind, HostState
from kvadmin.crypto import EncryptedTextField, HoldsSecrets
from kvadmin.sentences import SentenceField, unpack

if TYPE_CHECKING:
    from kvadmin.models import User


class HostQuerySet(models.QuerySet["Host"]):
    def visible_to(self, user: User) -> HostQuerySet:
        return self if user.may("host.view") else self.none()


class Host(HoldsSecrets):
    """A GPU server reached over SSH, or this machine itself.

    ``host_key`` is the pinned key ("type base64"); ``offered_key`` is one that the host showed and
    that nobody has confirmed. With a changed key both are set and the state is ``blocked``.
    ``facts`` is the last probe's result as engines.probe describes it; its ``gpu_note`` is packed.
    ``misses`` counts the looks in a row that could not reach it (see engines/launch/reconcile.py).
    """

    name = models.CharField(_("name"), max_length=100, unique=True)
    kind = models.CharField(_("kind"), max_length=10, choices=HostKind, default=HostKind.SSH)
    address = models.CharField(_("address"), max_length=255, blank=True)
    port = models.PositiveIntegerField(_("SSH port"), default=22)
    username = models.CharField(_("user"), max_length=64, blank=True)
    auth = models.CharField(_("sign-in by"), max_length=10, choices=HostAuth, default=HostAuth.KEY)
    private_key = EncryptedTextField(blank=True, default="")
    passphrase = EncryptedTextField(blank=True, default="")
    password = EncryptedTextField(blank=True, default="")
    public_key = models.TextField(_("public key"), blank=True, default="")
    jump = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="behind")
    service_address = models.CharField(_("service address"), max_length=255, blank=True)
    work_dir = models.CharField(_("folder on the host"), max_length=255, default="~/.kvadmin")
    model_dirs = models.JSONField(_("model folders"), default=list, blank=True)
    index_url = models.CharField(_("package index"), max_length=255, blank=True)
    wheel_dir = models.CharField(_("wheel folder"), max_length=255, blank=True)
    proxy = models.CharField(_("proxy"), max_length=255, blank=True)

    host_key = models.TextField(blank=True, default="")
    offered_key = models.TextField(blank=True, default="")
    state = models.CharField(_("state"), max_length=12, choices=HostState, default=HostState.NEW)
    state_text = SentenceField(blank=True, default="")
    last_seen_at = models.DateTimeField(_("last seen"), null=True)
    misses = models.PositiveIntegerField(default=0)
    boot_id = models.CharField(max_length=36, blank=True, default="")
    facts = models.JSONField(default=dict)
    facts_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = HostQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(kind=HostKind.LOCAL) | ~models.Q(address=""),
                name="engines_host_ssh_has_address",
            ),
            models.UniqueConstraint(
                fields=["kind"],
                condition=models.Q(kind=HostKind.LOCAL),
                name="engines_host_one_local",
            ),
            models.CheckConstraint(
                condition=models.Q(port__gte=1, port__lte=65535), name="engines_host_port_range"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("engines:host_detail", args=[self.pk])

    @property
    def tone(self) -> str:
        return HostState(self.state).tone

    @property
    def is_local(self) -> bool:
        return self.kind == HostKind.LOCAL

    @property
    def gpu_note(self) -> str:
        """Why the last probe saw no GPU, or not all of them; empty when there is nothing to say."""
        return unpack(self.facts.get("gpu_note", ""))

    @property
    def service_host(self) -> str:
        """The address at which poller and gateway reach this host's engines."""
        return self.service_address or ("127.0.0.1" if self.is_local else self.address)


class VllmEnvironmentSource(models.TextChoices):
    PROVISIONED = "provisioned", _("Made by kvadmin")
    FOUND = "found", _("Found on the host")


class VllmEnvironment(models.Model):
    """A Python environment on a host in which vLLM is installed.

    ``path`` is the environment's folder; ``executable`` the absolute path of its ``vllm``.
    """

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="environments")
    path = models.CharField(_("folder"), max_length=500)
    executable = models.CharField(max_length=500, blank=True, default="")
    version = models.CharField(_("vLLM version"), max_length=40)
    python_version = models.CharField(max_length=20, blank=True, default="")
    source = models.CharField(
        max_length=12, choices=VllmEnvironmentSource, default=VllmEnvironmentSource.FOUND
    )
    usable = models.BooleanField(default=True)
    note = SentenceField(blank=True, default="")
    seen_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["host", "version"]
        constraints = [
            models.UniqueConstraint(fields=["host", "path"], name="engines_environment_unique_path"),
        ]

    def __str__(self) -> str:
        return f"vLLM {self.version} ({self.path})"
