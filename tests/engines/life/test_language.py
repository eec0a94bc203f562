"""What an operation says is read in the language of whoever reads it."""

from __future__ import annotations

import pytest
from django.utils import translation

from engines.choices import OperationKind
from engines.models import Operation
from engines.operations import runner
from engines.operations.begin import begin_operation
from kvadmin.actions import Actor
from tests.support.factories import HostFactory


def cancelled(actor: Actor) -> Operation:
    operation = begin_operation(OperationKind.PROBE, actor=actor, host=HostFactory())
    Operation.objects.filter(pk=operation.pk).update(cancel_requested=True)
    runner.tick(operation.pk)
    return operation


@pytest.mark.parametrize("asked_in", ["zh-hans", "en", ""])
def test_an_operation_speaks_each_reader_s_language(operator, asked_in):
    operator.language = asked_in
    operator.save()
    operation = cancelled(Actor(user=operator))
    for language, said in (("zh-hans", "已取消。"), ("en", "Cancelled.")):
        with translation.override(language):
            operation.refresh_from_db()
        assert operation.message == said
