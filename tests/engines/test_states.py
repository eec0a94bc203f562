import pytest

from engines.choices import EngineState
from engines.models import Engine, Transition
from tests.support.factories import EngineFactory

pytestmark = pytest.mark.django_db


def test_move_writes_a_transition_and_a_new_seq():
    engine = EngineFactory()
    assert engine.move(EngineState.STARTING, only_from=(EngineState.STOPPED,), reason="asked")
    row = Transition.objects.get(engine=engine)
    assert (row.from_state, row.to_state, row.reason) == ("stopped", "starting", "asked")
    assert Engine.objects.get(pk=engine.pk).seq > 0


def test_move_of_a_stale_instance_loses_the_race():
    engine = EngineFactory()
    stale = Engine.objects.get(pk=engine.pk)
    assert engine.move(EngineState.STARTING, only_from=(EngineState.STOPPED,))
    assert not stale.move(EngineState.FAILED, only_from=(EngineState.STOPPED,))
    assert stale.observed == EngineState.STARTING
    assert Transition.objects.count() == 1
