"""What the actions have in common that only begin an operation on a host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engines.actions.host_ready import refuse_unconfirmed
from engines.choices import OperationKind
from engines.models import Host, Operation
from engines.operations.begin import begin_operation
from kvadmin.actions import Action


@dataclass
class HostOperation(Action[Operation]):
    """Begin an operation of ``kind`` on a host whose key is confirmed."""

    kind: ClassVar[OperationKind]
    permission: ClassVar[str] = "host.operate"

    host: Host

    def subject(self) -> Host:
        return self.host

    def check(self) -> None:
        refuse_unconfirmed(self.host)

    def execute(self) -> Operation:
        return begin_operation(self.kind, actor=self.actor, host=self.host)
