from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class VllmFlags(models.Model):
    """The flags of a vLLM that the catalogue lacks, read from one that is installed on a host.

    ``version`` is what that vLLM calls itself; ``flags`` as engines.vllm.releases.flags_as_json writes it.
    """

    version = models.CharField(_("vLLM version"), max_length=40, unique=True)
    flags = models.JSONField(default=dict)
    read_from = models.CharField(_("read from"), max_length=600)
    read_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["version"]

    def __str__(self) -> str:
        return f"vLLM {self.version}"
