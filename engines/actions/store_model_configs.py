"""Keep what a probe read of the models on a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engines.models import Host, ModelConfig
from kvadmin.actions import Action


@dataclass
class StoreModelConfigs(Action[int]):
    """Store or renew the shape of each model, and forget those that are gone; returns how many there are.

    ``found``: [{"path", "name", "weight_bytes", "config"}].
    """

    verb = "host.store_model_configs"
    permission = "host.operate"

    host: Host
    found: Sequence[dict[str, Any]] = field(repr=False)

    def subject(self) -> Host:
        return self.host

    def execute(self) -> int:
        paths = [one["path"][:500] for one in self.found]
        gone, _rows = ModelConfig.objects.filter(host=self.host).exclude(path__in=paths).delete()
        for one in self.found:
            ModelConfig.objects.update_or_create(
                host=self.host,
                path=one["path"][:500],
                defaults={
                    "name": one["name"][:500],
                    "config": one["config"],
                    "weight_bytes": one["weight_bytes"],
                },
            )
        self.after = {"models": len(paths), "gone": gone}
        return len(paths)
