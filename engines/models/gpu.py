from __future__ import annotations

from django.db import models
from django.utils import timezone

from engines.models.host import Host


class GpuSample(models.Model):
    """One reading of one GPU. A figure that the card does not report is None, never 0."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="gpu_samples")
    taken_at = models.DateTimeField(default=timezone.now)
    index = models.PositiveSmallIntegerField()
    uuid = models.CharField(max_length=64)
    memory_total_mib = models.PositiveIntegerField(null=True)
    memory_used_mib = models.PositiveIntegerField(null=True)
    utilization = models.PositiveSmallIntegerField(null=True)
    temperature = models.SmallIntegerField(null=True)
    power = models.FloatField(null=True)

    class Meta:
        ordering = ["-taken_at", "index"]
        indexes = [
            models.Index("host", models.F("taken_at").desc(), name="engines_gpu_sample_host_recent"),
            # for trimming: the oldest rows of all hosts
            models.Index(fields=["taken_at"], name="engines_gpu_sample_taken"),
        ]

    def __str__(self) -> str:
        return f"{self.host} GPU {self.index} {self.taken_at:%Y-%m-%d %H:%M}"
