"""Old operations go, except those that a running start still needs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from engines.choices import EngineState, OperationKind, OperationState
from engines.models import EngineStart, Operation, OperationLine
from engines.tasks.operations import trim_operations
from tests.support.factories import EngineFactory, OperationFactory

pytestmark = pytest.mark.django_db


def ended(days: float, **values: object) -> Operation:
    operation = OperationFactory(state=OperationState.SUCCEEDED, **values)
    at = timezone.now() - timedelta(days=days)
    Operation.objects.filter(pk=operation.pk).update(created_at=at, finished_at=at)
    return operation


def left() -> set[int]:
    return set(Operation.objects.values_list("pk", flat=True))


def test_old_ones_go_with_their_log(settings):
    settings.KVADMIN_KEEP_OPERATIONS_D = 30
    old, kept = ended(31), ended(29)
    active = OperationFactory()
    Operation.objects.filter(pk=active.pk).update(created_at=timezone.now() - timedelta(days=99))
    OperationLine.objects.create(operation=old, text="a line")
    assert trim_operations() == 1
    assert left() == {kept.pk, active.pk}
    assert not OperationLine.objects.exists()


def test_those_of_a_running_start_stay(settings):
    settings.KVADMIN_KEEP_OPERATIONS_D = 30
    engine = EngineFactory()
    values = {"engine": engine, "host": engine.host}
    before = ended(60, kind=OperationKind.STOP, **values)
    launch = ended(50, kind=OperationKind.START, **values)
    start = EngineStart.objects.create(engine=engine, number=1)
    engine.current_start = start
    engine.save()
    EngineStart.objects.filter(pk=start.pk).update(created_at=timezone.now() - timedelta(days=49.9))
    engine.move(EngineState.LOADING, only_from=(EngineState.STOPPED,), start=start, operation=launch)
    since = ended(40, kind=OperationKind.STOP, **values)
    assert trim_operations() == 1
    assert left() == {launch.pk, since.pk}
    assert before.pk not in left()

    EngineStart.objects.update(ended_at=timezone.now())
    assert trim_operations() == 2
    assert engine.transitions.get().operation is None
