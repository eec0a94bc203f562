from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engines.actions.host_operation import HostOperation
from engines.choices import OperationKind


@dataclass
class DiscoverEngines(HostOperation):
    """Look for vLLM servers on a host that kvadmin did not start."""

    verb: ClassVar[str] = "host.discover"
    kind: ClassVar[OperationKind] = OperationKind.DISCOVER
