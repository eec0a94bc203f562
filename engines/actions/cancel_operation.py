from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from django.db import transaction

from engines.models import Operation
from engines.operations.base import flow_for
from kvadmin.actions import Action, Conflict
from kvadmin.sentences import gettext as _


@dataclass
class CancelOperation(Action[Operation]):
    """Ask an operation to end where it is. A cancelled start is followed by a stop of its own."""

    verb: ClassVar[str] = "operation.cancel"
    permission: ClassVar[str] = "operation.cancel"

    operation: Operation

    def subject(self) -> Operation:
        return self.operation

    def check(self) -> None:
        self.operation.refresh_from_db(fields=["state", "cancel_requested"])
        if not self.operation.is_active:
            raise Conflict(
                _("%(what)s has ended already.") % {"what": self.operation},
                code="operation_ended",
                remedy=_("Look at its outcome."),
            )
        if not flow_for(self.operation.kind).cancellable:
            raise Conflict(
                _("%(what)s cannot be cancelled: half of it would be left.") % {"what": self.operation},
                code="operation_not_cancellable",
                remedy=_("Wait until it ends."),
            )

    def execute(self) -> Operation:
        Operation.objects.filter(pk=self.operation.pk).update(cancel_requested=True)
        self.operation.cancel_requested = True
        self.after = {"kind": self.operation.kind}
        transaction.on_commit(self._tick)
        return self.operation

    def _tick(self) -> None:
        from engines.tasks.operations import advance_operation

        advance_operation.delay(self.operation.pk)
