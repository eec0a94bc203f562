from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engines.actions.host_operation import HostOperation
from engines.choices import OperationKind


@dataclass
class ProbeHost(HostOperation):
    """Look at a host: system, GPUs and who uses them, Pythons, vLLM environments, models."""

    verb: ClassVar[str] = "host.probe"
    kind: ClassVar[OperationKind] = OperationKind.PROBE
