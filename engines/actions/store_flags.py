"""Keep the flags that an installed vLLM has printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.utils.translation import gettext as _

from engines.models import Host, VllmFlags
from engines.vllm.releases import Flag, flags_as_json
from kvadmin.actions import Action, Invalid


@dataclass
class StoreFlags(Action[VllmFlags]):
    """Store or renew the list of one version, read from ``host``; returns its row."""

    verb = "vllm.store_flags"
    permission = "host.operate"

    host: Host
    version: str
    executable: str
    flags: Mapping[str, Flag] = field(repr=False)

    def subject(self) -> Host:
        return self.host

    def check(self) -> None:
        if not self.version.strip() or len(self.version) > 40:
            raise Invalid(_("The version of that vLLM is not known."), field="version")

    def execute(self) -> VllmFlags:
        row, made = VllmFlags.objects.update_or_create(
            version=self.version,
            defaults={
                "flags": flags_as_json(self.flags),
                "read_from": f"{self.host.name}: {self.executable}"[:600],
            },
        )
        self.before = {} if made else {"version": self.version}
        self.after = {"version": self.version, "flags": len(self.flags), "from": row.read_from}
        return row
