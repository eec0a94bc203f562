from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from engines.models.host import Host


class ModelConfig(models.Model):
    """The config.json of a model that lies on a host, as its last probe read it.

    ``name`` is what a profile may call it (a Hugging Face name, or the folder's own); ``weight_bytes`` is the
    sum of its weight files, null where there are none.
    """

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="model_configs")
    path = models.CharField(_("folder"), max_length=500)
    name = models.CharField(max_length=500)
    config = models.JSONField(default=dict)
    weight_bytes = models.BigIntegerField(null=True)
    read_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["host", "path"]
        constraints = [
            models.UniqueConstraint(fields=["host", "path"], name="engines_model_config_once_per_folder")
        ]

    def __str__(self) -> str:
        return self.name
