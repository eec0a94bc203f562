"""Moves an operation on. One tick runs steps until one says Again or the time slice is used up.

Safe against doubles: a tick holds a PostgreSQL advisory lock, which dies with its connection, so a
killed worker blocks nothing. ``resume_operations`` takes up whatever is due.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction
from django.utils import timezone, translation

from engines.choices import OperationState, StepState
from engines.models import Host, Operation, OperationLine, OperationStep
from engines.operations.base import Again, Context, Done, Flow, Step, StepFailed, flow_for
from engines.ssh.errors import HostError, HostUnreachable
from engines.ssh.session import Session, session_for
from engines.states import touch_engine
from kvadmin.crypto import SecretUnreadable
from kvadmin.sentences import gettext as _

logger = logging.getLogger(__name__)

#: longest time one tick holds a worker when the steps answer at once
SLICE_S = 10.0
#: advisory lock class of operations (the second key is the operation's id)
LOCK_CLASS = 7101
_RETRY_S = (1, 2, 5, 10)


@contextmanager
def advisory_lock(lock_class: int, number: int) -> Iterator[bool]:
    """A session-level advisory lock, not waited for; yields whether it was got."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [lock_class, number])
        got = cursor.fetchone()[0]
    try:
        yield got
    finally:
        if got:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [lock_class, number])


def tick(operation_id: int, *, connect: Callable[[Host], Session] = session_for) -> float | None:
    """Run one tick; seconds until the next one is due, or None when there is nothing more to do."""
    with advisory_lock(LOCK_CLASS, operation_id) as got:
        if not got:
            return None
        operation = (
            Operation.objects.active()
            .select_related("host", "engine", "engine__host", "engine__revision", "requested_by")
            .filter(pk=operation_id)
            .first()
        )
        if operation is None:
            return None
        context = Context(operation=operation, connect=connect)
        with translation.override(_language_for(operation)):
            return _advance(context, flow_for(operation.kind))


def _language_for(operation: Operation) -> str:
    """What is said is stored as text, so in the language of the person who asked for it."""
    chosen = operation.requested_by.language if operation.requested_by else ""
    return chosen if chosen in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


def _advance(context: Context, flow: Flow) -> float | None:
    operation = context.operation
    if operation.state == OperationState.PENDING:
        operation.state, operation.started_at = OperationState.RUNNING, timezone.now()
        operation.save(update_fields=["state", "started_at"])
    steps = {step.name: step for step in flow.steps}
    until = time.monotonic() + SLICE_S
    rows = operation.steps.exclude(state__in=[StepState.DONE, StepState.SKIPPED])
    for row in rows.order_by("position"):
        operation.refresh_from_db(fields=["cancel_requested"])
        if operation.cancel_requested and flow.cancellable:
            _end(context, flow, OperationState.CANCELLED, message=_("Cancelled."))
            return None
        outcome = _run_step(context, flow, row, steps[row.name])
        if outcome is None:
            return None
        if isinstance(outcome, Again):
            return _postpone(context, outcome.after)
        if outcome.finish:
            operation.steps.filter(state=StepState.PENDING).update(state=StepState.SKIPPED)
            break
        if time.monotonic() > until:
            return _postpone(context, 0)
    _end(context, flow, OperationState.SUCCEEDED)
    return None


def _run_step(context: Context, flow: Flow, row: OperationStep, step: Step) -> Done | Again | None:
    """Run one step; None when it ended the operation."""
    now = timezone.now()
    if row.state == StepState.PENDING:
        row.state, row.started_at = StepState.RUNNING, now
    row.attempts += 1
    row.save(update_fields=["state", "started_at", "attempts"])
    try:
        outcome = step.run(context)
        if isinstance(outcome, Again) and (now - row.started_at).total_seconds() > step.limit_s:
            raise StepFailed(
                _("This step took longer than %(limit)d s.") % {"limit": step.limit_s},
                code="step_timeout",
                remedy=_("Look at the log below, then try again."),
            )
    except (OperationalError, InterfaceError):
        # the database is away or refused this once: the tick is lost, and the step is done again
        raise
    except HostUnreachable as error:
        return _unreachable(context, flow, row, step, error)
    except (StepFailed, HostError) as error:
        _fail(context, flow, row, error.code, error.message, error.remedy)
        return None
    except SecretUnreadable:
        _fail(
            context,
            flow,
            row,
            "secret_unreadable",
            _("A stored secret that this step needs cannot be read: kvadmin's data key is another one now."),
            _("Enter the secret again where it belongs, or put the old data key back behind the new one."),
        )
        return None
    except Exception as error:
        logger.exception("operation %s: step %s", context.operation.pk, step.name)
        _fail(
            context,
            flow,
            row,
            "internal_error",
            _("kvadmin itself failed in this step: %(error)s") % {"error": type(error).__name__},
            _("The worker's log has the details. Try again, and report it if it comes back."),
        )
        return None
    context.scratch.pop("unreachable_since", None)
    if isinstance(outcome, Done):
        row.state = StepState.SKIPPED if outcome.skipped else StepState.DONE
        row.finished_at = timezone.now()
    else:
        context.operation.progress = outcome.progress
        context.operation.progress_text = outcome.detail
    if outcome.detail:
        row.detail = outcome.detail
    row.save(update_fields=["state", "detail", "finished_at"])
    _save(context)
    return outcome


def _unreachable(
    context: Context, flow: Flow, row: OperationStep, step: Step, error: HostUnreachable
) -> Again | None:
    since = context.scratch.setdefault("unreachable_since", time.time())
    if time.time() - since > step.patience_s:
        _fail(context, flow, row, error.code, error.message, error.remedy)
        return None
    row.detail = error.message
    row.save(update_fields=["detail"])
    context.log(error.message)
    context.__dict__.pop("session", None)
    _save(context)
    return Again(_RETRY_S[min(row.attempts, len(_RETRY_S)) - 1], error.message)


def _fail(context: Context, flow: Flow, row: OperationStep, code: str, message: str, remedy: str) -> None:
    row.state, row.detail, row.finished_at = StepState.FAILED, message, timezone.now()
    # in one: steps skipped in an operation that then goes on would count as done
    with transaction.atomic():
        row.save(update_fields=["state", "detail", "finished_at"])
        context.operation.steps.filter(state=StepState.PENDING).update(state=StepState.SKIPPED)
        _end(context, flow, OperationState.FAILED, code=code, message=message, remedy=remedy)


def _end(
    context: Context,
    flow: Flow,
    state: OperationState,
    *,
    code: str = "",
    message: str = "",
    remedy: str = "",
) -> None:
    operation = context.operation
    with transaction.atomic():
        operation.state, operation.finished_at = state, timezone.now()
        operation.code, operation.message, operation.remedy = code, message, remedy
        if state == OperationState.SUCCEEDED:
            operation.progress = 1.0
            flow.succeeded(context)
        elif state == OperationState.FAILED:
            flow.failed(context, code=code, message=message, remedy=remedy)
        else:
            operation.steps.filter(state__in=[StepState.PENDING, StepState.RUNNING]).update(
                state=StepState.SKIPPED
            )
            flow.cancelled(context)
        _save(context)


def _postpone(context: Context, after: float) -> float:
    context.operation.next_tick_at = timezone.now() + timedelta(seconds=after)
    _save(context)
    return after


def _save(context: Context) -> None:
    context.operation.save(
        update_fields=[
            "state",
            "scratch",
            "progress",
            "progress_text",
            "code",
            "message",
            "remedy",
            "next_tick_at",
            "finished_at",
        ]
    )
    OperationLine.objects.bulk_create(
        OperationLine(operation=context.operation, text=text) for text in context.lines
    )
    context.lines.clear()
    if context.operation.engine_id:
        touch_engine(context.operation.engine_id)
