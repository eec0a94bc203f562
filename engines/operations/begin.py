"""Creating an operation: its row, its steps, and the first tick after the commit."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from engines.models import Engine, Host, Operation, OperationStep
from engines.operations.base import flow_for
from kvadmin.actions import Actor, Conflict
from kvadmin.sentences import gettext as _

if TYPE_CHECKING:
    from engines.choices import OperationKind


def begin_operation(
    kind: OperationKind,
    *,
    actor: Actor,
    host: Host,
    engine: Engine | None = None,
    parameters: dict[str, Any] | None = None,
    batch: UUID | None = None,
    after: float = 0,
) -> Operation:
    """Create a pending operation and enqueue its first tick once the transaction commits.

    Raises Conflict when one is active already for this engine (or of this kind on this host).
    """
    try:
        with transaction.atomic():
            operation = Operation.objects.create(
                kind=kind,
                host=host,
                engine=engine,
                batch=batch,
                requested_by=actor.user,
                source=actor.source,
                parameters=parameters or {},
                next_tick_at=timezone.now() + timedelta(seconds=after),
            )
    except IntegrityError as error:
        busy = (
            Operation.objects.active()
            .filter(**({"engine": engine} if engine else {"host": host, "engine": None, "kind": kind}))
            .first()
        )
        raise Conflict(
            _("%(what)s is still under way.") % {"what": busy or kind},
            code="operation_active",
            remedy=_("Wait until it ends, or cancel it first."),
        ) from error
    OperationStep.objects.bulk_create(
        OperationStep(operation=operation, position=position, name=step.name)
        for position, step in enumerate(flow_for(kind).steps)
    )
    transaction.on_commit(lambda: _enqueue(operation.pk, after))
    return operation


def _enqueue(operation_id: int, after: float) -> None:
    from engines.tasks.operations import advance_operation

    advance_operation.apply_async((operation_id,), countdown=after or None)
