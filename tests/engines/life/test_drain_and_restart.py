from __future__ import annotations

import time

import pytest

from engines.actions.restart_engine import RestartEngine
from engines.actions.stop_engine import StopEngine
from engines.choices import EngineState
from engines.models import Engine, Operation
from kvadmin.actions import Actor, Conflict
from tests.support.factories import RevisionFactory
from tests.support.route_factories import TargetFactory


def draining(place, engine, **parameters):
    engine.move(EngineState.DRAINING, only_from=(EngineState.READY,))
    return place.begin("drain", engine, **parameters)


def test_a_drain_waits_for_requests_then_stops(place):
    engine = place.engine()
    place.start(engine)
    place.tell(engine, running=2, waiting=1)
    operation = draining(place, engine)
    place.tick(operation)
    operation.refresh_from_db()
    assert operation.is_active
    assert operation.progress_text == "3 requests are left"
    assert place.processes(engine)
    place.tell(engine, running=0, waiting=0)
    assert place.drive(operation).state == "succeeded"
    engine.refresh_from_db()
    assert engine.observed == "stopped"
    assert place.processes(engine) == []


def test_a_drain_goes_on_at_its_limit_and_says_what_is_cut_off(place):
    engine = place.engine()
    place.start(engine)
    place.tell(engine, running=4)
    operation = place.drive(draining(place, engine, limit_s=0))
    assert operation.state == "succeeded"
    assert "4 requests" in operation.steps.get(name="drain").detail


def test_a_cancelled_drain_serves_on(place):
    engine = place.engine()
    place.start(engine)
    place.tell(engine, running=1)
    operation = draining(place, engine)
    place.tick(operation)
    Operation.objects.filter(pk=operation.pk).update(cancel_requested=True)
    place.tick(operation)
    engine.refresh_from_db()
    assert engine.observed == "ready"
    assert engine.desired == "running"
    assert len(place.processes(engine)) == 4


def test_a_stop_cuts_a_drain_short(place, django_capture_on_commit_callbacks):
    engine = place.engine()
    place.start(engine)
    place.tell(engine, running=3)
    drain = draining(place, engine, limit_s=86400)
    place.tick(drain)
    assert StopEngine(Actor.system(), engine, grace_s=7).run() == drain
    with django_capture_on_commit_callbacks(execute=True):
        place.tick(drain)
    drain.refresh_from_db()
    assert drain.state == "cancelled"
    stop = engine.operations.active().get()
    assert (stop.kind, stop.parameters) == ("stop", {"grace_s": 7})
    assert place.drive(stop).state == "succeeded"
    engine.refresh_from_db()
    assert (engine.observed, engine.desired) == ("stopped", "stopped")
    assert place.processes(engine) == []


def test_a_drain_that_is_ending_the_engine_is_left_to_it(place):
    engine = place.engine()
    place.start(engine)
    drain = draining(place, engine)
    engine.move(EngineState.STOPPING, only_from=(EngineState.DRAINING,))
    with pytest.raises(Conflict) as refused:
        StopEngine(Actor.system(), engine).run()
    assert refused.value.code == "engine_stopping"
    drain.refresh_from_db()
    assert not drain.cancel_requested


def test_a_restart_runs_the_new_revision_with_the_same_key(place):
    engine = place.engine()
    place.start(engine)
    key, first = engine.api_key, engine.current_start
    new = RevisionFactory(
        profile=engine.revision.profile,
        model=engine.revision.model,
        served_names=["tiny-v2"],
        values={"max_model_len": 2048},
    )
    Engine.objects.filter(pk=engine.pk).update(revision=new)
    engine.refresh_from_db()
    assert engine.pending_changes == ["revision"]
    engine.move(EngineState.STOPPING, only_from=(EngineState.READY,))
    operation = place.drive(place.begin("restart", engine))
    assert operation.state == "succeeded", operation.message
    engine.refresh_from_db()
    assert engine.observed == "ready"
    assert engine.served_names == ["tiny-v2"]
    assert engine.max_model_len == 2048
    assert engine.api_key == key
    assert engine.pending_changes == []
    first.refresh_from_db()
    assert first.exit_status == 0
    assert engine.current_start.number == 2


def test_a_restart_that_cannot_start_again_ends_in_failed(place):
    engine = place.engine()
    place.start(engine)
    place.executable.unlink()
    engine.move(EngineState.STOPPING, only_from=(EngineState.READY,))
    operation = place.drive(place.begin("restart", engine))
    assert operation.state == "failed"
    assert operation.code == "environment_missing"
    engine.refresh_from_db()
    assert engine.observed == "failed"
    assert place.processes(engine) == []


def test_a_restart_of_an_engine_with_callers_lets_their_requests_finish(place, operator):
    engine = place.engine()
    place.start(engine)
    TargetFactory(engine=engine)
    place.tell(engine, running=2)
    operation = RestartEngine(Actor(user=operator), engine).run()
    assert engine.observed == "draining"
    place.tick(operation)
    operation.refresh_from_db()
    assert operation.progress_text == "2 requests are left"
    assert len(place.processes(engine)) == 4
    place.tell(engine, running=0)
    assert place.drive(operation).state == "succeeded", operation.message
    engine.refresh_from_db()
    assert (engine.observed, engine.current_start.number) == ("ready", 2)


def test_a_restart_that_is_cancelled_while_it_drains_serves_on(place, operator):
    engine = place.engine()
    place.start(engine)
    TargetFactory(engine=engine)
    place.tell(engine, running=2)
    operation = RestartEngine(Actor(user=operator), engine).run()
    place.tick(operation)
    Operation.objects.filter(pk=operation.pk).update(cancel_requested=True)
    place.tick(operation)
    engine.refresh_from_db()
    assert (engine.observed, engine.desired) == ("ready", "running")
    assert len(place.processes(engine)) == 4


def test_engines_outlive_the_session_that_started_them(place):
    engine = place.engine()
    place.start(engine)
    place.session.close()
    time.sleep(0.5)
    assert len(place.processes(engine)) == 4
