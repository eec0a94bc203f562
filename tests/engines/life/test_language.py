"""What an operation says is in the language of the person who asked for it."""

from __future__ import annotations

import pytest
from django.utils import translation

from engines.choices import OperationKind
from engines.models import Operation
from engines.operations import runner
from engines.operations.begin import begin_operation
from kvadmin.actions import Actor
from tests.support.factories import HostFactory


def said_when_cancelled(actor: Actor) -> str:
    operation = begin_operation(OperationKind.PROBE, actor=actor, host=HostFactory())
    Operation.objects.filter(pk=operation.pk).update(cancel_requested=True)
    runner.tick(operation.pk)
    operation.refresh_from_db()
    return operation.message


@pytest.mark.parametrize(
    ("language", "said"), [("zh-hans", "已取消。"), ("en", "Cancelled."), ("", "Cancelled.")]
)
def test_an_operation_speaks_the_language_of_who_asked(operator, language, said):
    operator.language = language
    operator.save()
    with translation.override("zh-hans" if language == "en" else "en"):
        assert said_when_cancelled(Actor(user=operator)) == said


def test_an_operation_of_nobody_speaks_english(db):
    with translation.override("zh-hans"):
        assert said_when_cancelled(Actor(source="system")) == "Cancelled."
