from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engines.actions.host_ready import refuse_unconfirmed
from engines.choices import OperationKind
from engines.models import Host, Operation
from engines.operations.begin import begin_operation
from kvadmin.actions import Action


@dataclass
class DiscoverEngines(Action[Operation]):
    """Look for vLLM servers on a host that kvadmin did not start."""

    verb: ClassVar[str] = "host.discover"
    permission: ClassVar[str] = "host.operate"

    host: Host

    def subject(self) -> Host:
        return self.host

    def check(self) -> None:
        refuse_unconfirmed(self.host)

    def execute(self) -> Operation:
        return begin_operation(OperationKind.DISCOVER, actor=self.actor, host=self.host)
