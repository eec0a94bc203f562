"""Which ticks of an operation run, and what a tick leaves that breaks off."""

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from engines.models import Operation
from engines.operations import runner
from engines.operations.begin import begin_operation
from engines.operations.start import Start
from engines.ssh.errors import SignInRefused
from engines.tasks.operations import advance_operation
from kvadmin.actions import Actor
from tests.support.factories import EngineFactory

pytestmark = pytest.mark.django_db


def refused(_host):
    raise SignInRefused("The host refused the key.")


@pytest.fixture
def operation():
    engine = EngineFactory(observed="starting")
    return begin_operation("start", actor=Actor.system(), host=engine.host, engine=engine)


def test_a_doubled_tick_that_is_not_due_does_nothing(operation):
    Operation.objects.filter(pk=operation.pk).update(next_tick_at=timezone.now() + timedelta(seconds=30))
    advance_operation(operation.pk)
    operation.refresh_from_db()
    assert operation.state == "pending"


def test_a_cancelled_operation_does_not_wait_for_its_tick(operation):
    later = timezone.now() + timedelta(seconds=30)
    Operation.objects.filter(pk=operation.pk).update(next_tick_at=later, cancel_requested=True)
    advance_operation(operation.pk)
    operation.refresh_from_db()
    assert operation.state == "cancelled"


def test_a_database_that_is_away_in_a_step_costs_the_tick_and_not_the_operation(operation):
    def away(_host):
        raise OperationalError("the server closed the connection unexpectedly")

    with pytest.raises(OperationalError):
        runner.tick(operation.pk, connect=away)
    operation.refresh_from_db()
    assert operation.state == "running"
    assert Operation.objects.due().filter(pk=operation.pk).exists()
    assert operation.steps.get(name="reach").state == "running"


def test_a_failure_that_could_not_be_written_down_whole_leaves_every_step_to_do(operation, monkeypatch):
    def broken(*_args, **_kwargs):
        raise RuntimeError("the worker ends here")

    with monkeypatch.context() as patch:
        patch.setattr(Start, "failed", broken)
        with pytest.raises(RuntimeError):
            runner.tick(operation.pk, connect=refused)
    states = set(operation.steps.exclude(name="reach").values_list("state", flat=True))
    assert states == {"pending"}
    assert runner.tick(operation.pk, connect=refused) is None
    operation.refresh_from_db()
    assert (operation.state, operation.code) == ("failed", "sign_in_refused")
