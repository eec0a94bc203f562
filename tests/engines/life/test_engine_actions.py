from __future__ import annotations

import pytest

from engines.actions.cancel_operation import CancelOperation
from engines.actions.change_engine import ChangeEngine
from engines.actions.create_engine import CreateEngine
from engines.actions.drain_engine import DrainEngine
from engines.actions.operate_engines import OperateEngines
from engines.actions.remove_engine import RemoveEngine
from engines.actions.restart_engine import RestartEngine
from engines.actions.start_engine import StartEngine
from engines.actions.stop_engine import StopEngine
from engines.choices import HostAuth, HostKind, HostState
from engines.models import Engine, EngineStart, Operation
from kvadmin.actions import Actor, Conflict, Denied, Invalid
from kvadmin.models import AuditEvent
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, RevisionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def engine():
    host = HostFactory()
    return EngineFactory(host=host, environment=EnvironmentFactory(host=host), bind_address=host.address)


def as_user(user) -> Actor:
    return Actor(user=user, source="web")


def at(engine: Engine, state: str) -> Engine:
    Engine.objects.filter(pk=engine.pk).update(observed=state)
    engine.refresh_from_db()
    return engine


def create(actor, **values) -> Engine:
    host = values.pop("host", None) or HostFactory()
    if "environment" not in values:
        EnvironmentFactory(host=host)
    return CreateEngine(actor, **{"name": "one", "host": host, "revision": RevisionFactory(), **values}).run()


def test_create_picks_port_address_environment_and_a_key_of_its_own(operator):
    host = HostFactory(address="10.0.0.9")
    EnvironmentFactory(host=host, version="0.9.2")
    newest = EnvironmentFactory(host=host, version="0.33.0")
    EnvironmentFactory(host=host, version="0.34.0", usable=False)
    one = create(as_user(operator), host=host, environment=None)
    two = create(as_user(operator), host=host, name="two", environment=None)
    assert (one.port, two.port) == (8000, 8001)
    assert one.bind_address == "10.0.0.9"
    assert one.environment == newest
    assert one.observed == "stopped"
    assert len(one.api_key) > 20
    assert one.api_key != two.api_key
    event = AuditEvent.objects.get(verb="engine.create", subject_id=str(one.pk))
    assert event.after["port"] == 8000
    assert one.api_key not in str(event.after)


def test_an_engine_on_this_machine_listens_on_loopback(operator):
    host = HostFactory(kind=HostKind.LOCAL, auth=HostAuth.NONE, address="")
    assert create(as_user(operator), host=host).bind_address == "127.0.0.1"


def test_create_says_everything_that_is_wrong_at_its_field(operator):
    host = HostFactory(name="h200-a", address="10.0.0.9")
    EngineFactory(host=host, port=8000, name="taken")
    elsewhere = EnvironmentFactory()
    with pytest.raises(Invalid) as refused:
        create(
            as_user(operator),
            host=host,
            name=" taken ",
            port=8000,
            bind_address="127.0.0.1",
            environment=elsewhere,
        )
    errors = refused.value.errors
    assert set(errors) == {"name", "port", "bind_address", "environment"}
    assert "8001" in errors["port"][0]
    assert "10.0.0.9" in errors["bind_address"][0]
    assert not Engine.objects.filter(port=8001).exists()


def test_create_without_any_vllm_says_to_provision_one(operator):
    with pytest.raises(Invalid) as refused:
        create(as_user(operator), environment=None)
    assert "provision" in refused.value.errors["environment"][0]


def test_a_running_engine_takes_a_new_revision_and_says_that_it_needs_a_restart(operator, engine):
    start = EngineStart.objects.create(
        engine=engine, number=1, revision=engine.revision, launched_at=engine.created_at
    )
    engine.current_start = start
    engine.save()
    at(engine, "ready")
    action = ChangeEngine(
        as_user(operator), engine, revision=RevisionFactory(profile=engine.revision.profile)
    )
    action.run()
    assert action.restart_needed
    assert engine.pending_changes == ["revision"]


def test_port_and_address_change_only_at_rest(operator, engine):
    at(engine, "ready")
    with pytest.raises(Conflict) as refused:
        ChangeEngine(as_user(operator), engine, port=9000).run()
    assert refused.value.field == "port"
    ChangeEngine(as_user(operator), at(engine, "stopped"), port=9000, keep_running=True).run()
    engine.refresh_from_db()
    assert (engine.port, engine.keep_running) == (9000, True)


def test_start_sets_what_is_desired_and_begins_one_operation(operator, engine):
    operation = StartEngine(as_user(operator), engine, override=["gpu_busy"]).run()
    engine.refresh_from_db()
    assert (engine.desired, engine.observed) == ("running", "starting")
    assert operation.requested_by == operator
    assert operation.parameters == {"override": ["gpu_busy"]}
    with pytest.raises(Conflict):
        StartEngine(as_user(operator), engine).run()
    assert engine.operations.count() == 1


@pytest.mark.parametrize("state", ["starting", "loading", "ready", "draining", "stopping", "unreachable"])
def test_start_is_refused_with_a_sentence_unless_at_rest(operator, engine, state):
    with pytest.raises(Conflict) as refused:
        StartEngine(as_user(operator), at(engine, state)).run()
    assert refused.value.code == f"engine_{state}"
    assert refused.value.remedy
    assert not engine.operations.exists()


def test_nothing_is_done_on_a_host_whose_key_changed(operator, engine):
    engine.host.state = HostState.BLOCKED
    engine.host.save()
    for action in (StartEngine, StopEngine, RestartEngine, DrainEngine):
        with pytest.raises(Conflict) as refused:
            action(as_user(operator), engine).run()
        assert refused.value.code == "host_key_changed"


def test_an_engine_without_a_profile_is_not_started(operator, engine):
    Engine.objects.filter(pk=engine.pk).update(revision=None)
    engine.refresh_from_db()
    with pytest.raises(Conflict) as refused:
        StartEngine(as_user(operator), engine).run()
    assert refused.value.code == "revision_missing"


def test_stop_while_starting_cancels_the_start(operator, engine):
    start = StartEngine(as_user(operator), engine).run()
    assert StopEngine(as_user(operator), engine).run() == start
    start.refresh_from_db()
    assert start.cancel_requested
    engine.refresh_from_db()
    assert engine.desired == "stopped"


def test_stop_of_a_stopped_engine_is_refused(operator, engine):
    with pytest.raises(Conflict) as refused:
        StopEngine(as_user(operator), engine).run()
    assert refused.value.code == "engine_stopped"


def test_drain_and_restart_need_a_ready_engine(operator, engine):
    for action in (DrainEngine, RestartEngine):
        with pytest.raises(Conflict):
            action(as_user(operator), at(engine, "stopped")).run()
    DrainEngine(as_user(operator), at(engine, "ready")).run()
    engine.refresh_from_db()
    assert (engine.observed, engine.desired) == ("draining", "stopped")


def test_remove_is_refused_while_anything_may_run(operator, engine):
    for state in ("ready", "unreachable"):
        with pytest.raises(Conflict):
            RemoveEngine(as_user(operator), at(engine, state)).run()
    pk = engine.pk
    RemoveEngine(as_user(operator), at(engine, "unreachable"), forget=True).run()
    assert not Engine.objects.filter(pk=pk).exists()
    event = AuditEvent.objects.get(verb="engine.remove")
    assert event.subject_id == str(pk)
    assert event.before["forgotten"] is True


def test_an_adopted_engine_may_be_forgotten_while_it_runs(operator, engine):
    engine.current_start = EngineStart.objects.create(engine=engine, number=1, launcher="adopted")
    engine.save()
    RemoveEngine(as_user(operator), at(engine, "ready")).run()
    assert not Engine.objects.exists()


def test_bulk_starts_what_can_be_started_and_says_what_cannot(operator, engine):
    host = engine.host
    other = EngineFactory(host=host, environment=engine.environment)
    running = at(EngineFactory(host=host, environment=engine.environment), "ready")
    results = OperateEngines(
        as_user(operator), engine_ids=[engine.pk, running.pk, other.pk, 999999], do="start"
    ).run()
    assert [bool(one.operation) for one in results] == [True, False, True, False]
    assert results[1].error.code == "engine_ready"
    assert results[3].error.code == "engine_unknown"
    batches = {one.operation.batch for one in results if one.operation}
    assert len(batches) == 1
    assert None not in batches
    event = AuditEvent.objects.get(verb="engine.operate")
    assert event.after["refused"] == {running.name: "engine_ready", "999999": "engine_unknown"}
    assert AuditEvent.objects.filter(verb="engine.start").count() == 2


def test_bulk_needs_a_verb_and_engines(operator, engine):
    with pytest.raises(Invalid):
        OperateEngines(as_user(operator), engine_ids=[engine.pk], do="explode").run()
    with pytest.raises(Invalid):
        OperateEngines(as_user(operator), engine_ids=[], do="start").run()


def test_cancel_refuses_what_has_ended_or_cannot_be_left_half_done(operator, engine):
    stop = StopEngine(as_user(operator), at(engine, "ready")).run()
    with pytest.raises(Conflict) as refused:
        CancelOperation(as_user(operator), stop).run()
    assert refused.value.code == "operation_not_cancellable"
    Operation.objects.filter(pk=stop.pk).update(state="succeeded")
    with pytest.raises(Conflict) as refused:
        CancelOperation(as_user(operator), stop).run()
    assert refused.value.code == "operation_ended"


@pytest.mark.parametrize("person", ["viewer", "outsider"])
def test_who_may_not_operate_changes_nothing(request, person, engine):
    actor = as_user(request.getfixturevalue(person))
    operation = Operation.objects.create(kind="start", host=engine.host, engine=engine)
    tries = [
        StartEngine(actor, engine),
        StopEngine(actor, engine),
        DrainEngine(actor, engine),
        RestartEngine(actor, engine),
        RemoveEngine(actor, engine),
        ChangeEngine(actor, engine, keep_running=True),
        OperateEngines(actor, engine_ids=[engine.pk], do="start"),
        CancelOperation(actor, operation),
        CreateEngine(actor, name="x", host=engine.host, revision=engine.revision),
    ]
    for action in tries:
        with pytest.raises(Denied):
            action.run()
    engine.refresh_from_db()
    assert (engine.observed, engine.desired, engine.keep_running) == ("stopped", "stopped", False)
    assert not AuditEvent.objects.exists()
