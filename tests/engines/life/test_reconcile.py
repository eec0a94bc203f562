from __future__ import annotations

import os
import shutil
import signal
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.utils import timezone

from engines.actions.remove_engine import RemoveEngine
from engines.actions.stop_engine import StopEngine
from engines.choices import DesiredState
from engines.launch import reconcile, remote
from engines.launch.ending import last_lines
from engines.models import Engine, EngineStart, Operation, Revision
from engines.operations import runner
from engines.ssh.errors import HostFileDenied, HostUnreachable, SignInRefused
from engines.ssh.local import local_session
from kvadmin.actions import Actor, Conflict
from kvadmin.crypto import Sealed
from tests.support.factories import EngineFactory, HostFactory


@pytest.fixture
def running(place):
    """An engine that was started to ready."""
    engine = place.engine()
    Engine.objects.filter(pk=engine.pk).update(desired=DesiredState.RUNNING)
    engine.refresh_from_db()
    assert place.start(engine).state == "succeeded"
    return engine


def look(place, engine, times: int = 1, connect=None) -> None:
    for _time in range(times):
        assert reconcile.reconcile_host(place.host.pk, connect=connect or place.connect)
    engine.refresh_from_db()
    if engine.current_start:
        engine.current_start.refresh_from_db()


def unreachable(_host):
    raise HostUnreachable("The host does not answer.")


class OtherBoot:
    """The host after a restart: another boot id, and the process gone."""

    def __init__(self):
        self.session = local_session()

    def run(self, script, **options):
        result = self.session.run(script, **options)
        lines = result.stdout.splitlines()
        if lines and lines[0].startswith("boot\t"):
            kept = [line for line in lines[1:] if not line.startswith("proc\t")]
            text = "\n".join(["boot\tffffffff-0000-0000-0000-000000000000", *kept]) + "\n"
            return type(result)(result.status, text, result.stderr)
        return result

    def __getattr__(self, name):
        return getattr(self.session, name)


def test_a_healthy_engine_stays_as_it_is(place, running):
    before = running.seq
    look(place, running, 2)
    assert running.observed == "ready"
    assert running.seq == before
    assert running.transitions.first().to_state == "ready"


def test_workers_whose_leader_was_killed_alone_are_ended(place, running):
    pids = [one.pid for one in place.processes(running)]
    os.kill(running.current_start.pid, signal.SIGKILL)
    look(place, running)
    assert place.processes(running) == []
    assert running.observed == "failed"
    assert running.reason_code == "killed"
    assert running.current_start.exit_status == 137
    assert running.current_start.ended_at is not None
    assert "Application startup complete" in running.current_start.last_lines
    assert len(pids) == 4


def test_all_of_it_killed_is_a_failure_without_an_exit_status(place, running):
    # stopped first, or the wrapper may write the leader's exit status before its own turn comes
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for one in place.processes(running):
            os.kill(one.pid, number)
    look(place, running)
    assert running.observed == "failed"
    assert running.reason_code == "process_gone"
    assert running.current_start.exit_status is None


def test_an_engine_ended_on_its_host_is_stopped_and_says_so(place, running):
    os.kill(running.current_start.pid, signal.SIGTERM)
    for _try in range(20):
        look(place, running)
        if running.observed != "ready":
            break
    assert running.observed == "stopped"
    assert running.reason_code == "ended_outside"


def test_an_unreachable_host_is_not_a_dead_engine(place, running):
    pids = [one.pid for one in place.processes(running)]
    look(place, running, 2, connect=unreachable)
    assert running.observed == "ready"
    look(place, running, connect=unreachable)
    assert running.observed == "unreachable"
    assert running.reason == "The host does not answer."
    assert [one.pid for one in place.processes(running)] == pids
    assert not running.operations.exclude(kind="start").exists()

    look(place, running)
    assert running.observed == "ready"
    place.host.refresh_from_db()
    assert place.host.misses == 0


def test_an_engine_that_ended_while_its_host_was_out_of_reach_is_found_ended(place, running):
    look(place, running, 3, connect=unreachable)
    os.kill(running.current_start.pid, signal.SIGKILL)
    look(place, running)
    assert running.observed == "failed"


def test_a_restarted_host_stops_its_engines(place, running):
    look(place, running, connect=lambda _host: OtherBoot())
    assert running.observed == "stopped"
    assert running.reason_code == "host_rebooted"
    assert running.desired == "stopped"
    assert not running.operations.active().exists()


def test_a_restarted_host_starts_those_that_are_kept_running(place, running):
    Engine.objects.filter(pk=running.pk).update(keep_running=True)
    look(place, running, connect=lambda _host: OtherBoot())
    operation = running.operations.active().get()
    assert operation.kind == "start"
    assert operation.source == "system"
    assert running.observed == "starting"


def test_a_kept_engine_that_crashed_starts_again_after_a_wait(place, running):
    Engine.objects.filter(pk=running.pk).update(keep_running=True)
    os.kill(running.current_start.pid, signal.SIGKILL)
    look(place, running, 2)
    assert running.observed == "failed"
    assert not running.operations.active().exists()
    Engine.objects.filter(pk=running.pk).update(state_at=timezone.now() - timedelta(seconds=6))
    look(place, running)
    assert running.operations.active().get().kind == "start"


def test_an_engine_that_keeps_failing_is_given_up_with_a_reason(place):
    engine = place.engine(keep_running=True, fail="exit")
    Engine.objects.filter(pk=engine.pk).update(desired=DesiredState.RUNNING)
    for _time in range(6):
        place.start(engine)
        assert engine.observed == "failed"
    Engine.objects.filter(pk=engine.pk).update(state_at=timezone.now() - timedelta(hours=1))
    look(place, engine)
    assert engine.reason_code == "flapping"
    assert "6 times" in engine.reason
    look(place, engine)
    assert not engine.operations.active().exists()


def test_a_start_whose_operation_was_lost_is_taken_up_where_it_is(place):
    engine = place.engine(ready_after="1.5")
    engine.move("starting", only_from=("stopped",))
    operation = place.drive(place.begin("start", engine), until="load")
    Operation.objects.filter(pk=operation.pk).update(state="failed")
    Engine.objects.filter(pk=engine.pk).update(observed="failed")
    before = [one.pid for one in place.processes(engine)]

    look(place, engine)
    resumed = engine.operations.active().get()
    assert resumed.parameters == {"resume": engine.current_start.pk}
    assert place.drive(resumed).state == "succeeded"
    engine.refresh_from_db()
    assert engine.observed == "ready"
    assert engine.starts.count() == 1
    assert set(before) <= {one.pid for one in place.processes(engine)}


def test_a_stop_that_lost_its_host_is_finished_when_the_host_is_back(place, running):
    Operation.objects.create(kind="stop", host=place.host, engine=running, state="failed")
    Engine.objects.filter(pk=running.pk).update(desired="stopped", observed="unreachable")
    look(place, running)
    assert place.drive(running.operations.active().get()).state == "succeeded"
    assert place.processes(running) == []


def test_processes_of_an_earlier_start_are_ended(place, running):
    old = running.current_start
    Engine.objects.filter(pk=running.pk).update(current_start=None, observed="stopped")
    running.refresh_from_db()
    other = place.engine()
    place.start(other)
    look(place, other)
    running.current_start = old
    running.save()
    assert place.processes(running) == []
    assert len(place.processes(other)) == 4


def test_an_engine_that_lives_and_does_not_answer_says_so(place, running):
    place.tell(running, health=503)
    look(place, running)
    assert running.observed == "ready"
    assert running.reason_code == "unhealthy"
    place.tell(running, health=200)
    look(place, running)
    assert running.reason_code == ""


def test_an_engine_with_an_operation_is_left_to_it(place, running):
    place.begin("stop", running)
    os.kill(running.current_start.pid, signal.SIGKILL)
    look(place, running)
    assert running.observed == "ready"


def test_what_runs_without_kvadmin_is_found_by_a_new_process(place, running):
    """Nothing but the database and the host tells kvadmin what runs: no memory of ours is needed."""
    pids = [one.pid for one in place.processes(running)]
    reconcile.reconcile_host(place.host.pk, connect=lambda _host: local_session())
    running.refresh_from_db()
    assert running.observed == "ready"
    assert [one.pid for one in place.processes(running)] == pids


def test_a_start_folder_that_was_removed_does_not_hide_its_processes(place, running):
    shutil.rmtree(running.current_start.directory)
    look(place, running)
    assert running.observed == "ready"
    assert place.stop(running).state == "succeeded"
    assert place.processes(running) == []


def refused(_host):
    raise SignInRefused("The host refused the key.")


def test_a_server_that_was_adopted_while_it_loaded_is_asked_and_never_started(place, running):
    before = [one.pid for one in place.processes(running)]
    EngineStart.objects.filter(pk=running.current_start.pk).update(
        launcher="adopted", directory="", ready_at=None
    )
    Engine.objects.filter(pk=running.pk).update(observed="loading", served_names=[])
    look(place, running)
    assert (running.observed, running.served_names) == ("ready", ["tiny"])
    assert running.current_start.ready_at is not None
    assert not running.operations.active().exists()
    assert [one.pid for one in place.processes(running)] == before


def test_a_host_that_refuses_to_sign_in_during_a_start_does_not_end_the_engine(place):
    engine = place.engine(ready_after="1")
    Engine.objects.filter(pk=engine.pk).update(desired=DesiredState.RUNNING)
    engine.move("starting", only_from=("stopped",))
    operation = place.drive(place.begin("start", engine), until="load")
    assert runner.tick(operation.pk, connect=refused) is None
    operation.refresh_from_db()
    engine.refresh_from_db()
    assert (operation.state, operation.code) == ("failed", "sign_in_refused")
    assert (engine.observed, engine.current_start.ended_at) == ("unreachable", None)
    before = {one.pid for one in place.processes(engine)}

    look(place, engine)
    assert place.drive(engine.operations.active().get()).state == "succeeded"
    assert before <= {one.pid for one in place.processes(engine)}


def test_a_cancelled_start_whose_stop_was_never_begun_is_stopped(place, running):
    Operation.objects.create(kind="start", host=place.host, engine=running, state="cancelled")
    Engine.objects.filter(pk=running.pk).update(desired="stopped", observed="stopping")
    look(place, running)
    assert running.operations.active().get().kind == "stop"


def test_what_moved_since_the_look_is_left_as_it_is(db):
    seen = EngineFactory(observed="ready")
    Engine.objects.filter(pk=seen.pk).update(observed="draining")
    assert not reconcile._move(seen, "ready", only_from=("draining", "unreachable"))
    assert Engine.objects.get(pk=seen.pk).observed == "draining"


def test_a_host_that_refuses_to_sign_in_is_not_tried_for_ever(db):
    host = HostFactory(state="online")
    engine = EngineFactory(host=host, observed="ready")
    engine.current_start = EngineStart.objects.create(engine=engine, number=1)
    engine.save()
    for _try in range(reconcile.MISSES):
        assert reconcile.hosts_to_reconcile() == [host.pk]
        reconcile.reconcile_host(host.pk, connect=refused)
    assert reconcile.hosts_to_reconcile() == []
    host.refresh_from_db()
    engine.refresh_from_db()
    assert (host.state, engine.observed) == ("refused", "unreachable")
    type(host).objects.filter(pk=host.pk).update(state="online")
    assert reconcile.hosts_to_reconcile() == [host.pk]


def test_a_log_that_may_not_be_read_keeps_no_start_from_being_closed():
    class Closed:
        def size(self, path):
            return 10

        def read_range(self, path, offset, length):
            raise HostFileDenied("The user may not use it.")

    assert last_lines(Closed(), EngineStart(log_path="/var/log/root-only.log")) == ""


def raises(error):
    def connect(_host):
        raise error

    return connect


@pytest.mark.parametrize("how", ["internal_error", "host_file_denied", "step_timeout"])
def test_an_operation_that_breaks_off_does_not_end_the_engine(place, how):
    engine = place.engine(ready_after="3")
    Engine.objects.filter(pk=engine.pk).update(desired=DesiredState.RUNNING)
    engine.move("starting", only_from=("stopped",))
    operation = place.drive(place.begin("start", engine), until="load")
    before = {one.pid for one in place.processes(engine)}
    connect = place.connect
    if how == "internal_error":
        connect = raises(KeyError("a mistake of kvadmin's"))
    elif how == "host_file_denied":
        connect = raises(HostFileDenied("The log may not be read."))
    else:
        operation.steps.filter(name="load").update(started_at=timezone.now() - timedelta(days=1))
    assert runner.tick(operation.pk, connect=connect) is None
    operation.refresh_from_db()
    engine.refresh_from_db()
    assert (operation.state, operation.code) == ("failed", how)
    assert (engine.observed, engine.reason_code, engine.current_start.ended_at) == ("unreachable", how, None)

    look(place, engine)
    assert place.drive(engine.operations.active().get()).state == "succeeded"
    assert before <= {one.pid for one in place.processes(engine)}


def test_an_engine_is_not_removed_while_processes_of_a_start_given_up_live(place, monkeypatch):
    engine = place.engine(fail="hang")
    with monkeypatch.context() as patch:
        patch.setattr(remote, "end", lambda *_args, **_options: [])
        place.start(engine, load_limit_s=1)
    assert (engine.observed, engine.reason_code) == ("failed", "load_timeout")
    assert engine.current_start.given_up_at is not None
    assert place.processes(engine)
    with pytest.raises(Conflict):
        RemoveEngine(Actor.system(), engine).run()

    look(place, engine)
    assert place.processes(engine) == []
    assert (engine.observed, engine.reason_code) == ("failed", "load_timeout")
    assert engine.current_start.ended_at is not None
    RemoveEngine(Actor.system(), engine).run()
    assert not Engine.objects.exists()


def test_an_earlier_start_is_closed_only_when_nothing_is_left_of_it(place, running):
    old = running.current_start
    newer = EngineStart.objects.create(engine=running, number=2, ended_at=timezone.now())
    Engine.objects.filter(pk=running.pk).update(current_start=newer, observed="stopped")
    with pytest.raises(Conflict):
        RemoveEngine(Actor.system(), Engine.objects.get(pk=running.pk)).run()
    look(place, running)
    old.refresh_from_db()
    assert old.ended_at is not None
    RemoveEngine(Actor.system(), running).run()


def test_an_engine_found_alive_that_cannot_be_heard_from_here_is_left_alone(place, running):
    start = running.current_start
    EngineStart.objects.filter(pk=start.pk).update(ready_at=None)
    Engine.objects.filter(pk=running.pk).update(observed="unreachable")
    type(place.host).objects.filter(pk=place.host.pk).update(service_address="127.0.0.9")
    before = [one.pid for one in place.processes(running)]
    resumed = place.drive(place.begin("start", running, resume=start.pk, reach_limit_s=0))
    running.refresh_from_db()
    assert (resumed.state, resumed.code) == ("failed", "not_reachable_from_here")
    assert (running.observed, running.reason) == ("unreachable", resumed.message)
    look(place, running)
    assert (running.observed, running.reason_code) == ("unreachable", "not_answering")
    assert [one.pid for one in place.processes(running)] == before
    assert not running.operations.active().exists()

    type(place.host).objects.filter(pk=place.host.pk).update(service_address="")
    look(place, running)
    assert running.observed == "ready"
    assert running.current_start.ready_at is not None


def test_a_stop_that_does_not_end_the_engine_is_tried_later_each_time_then_left_to_a_person(
    place, running, operator, monkeypatch
):
    Engine.objects.filter(pk=running.pk).update(desired="stopped", observed="stopping")
    running.refresh_from_db()
    with monkeypatch.context() as patch:
        patch.setattr(remote, "end", lambda *_args, **_options: [])
        patch.setattr(remote, "send_signal", lambda *_args, **_options: {})
        assert place.stop(running, grace_s=0).code == "process_stuck"
    assert running.observed == "failed"
    starts = EngineStart.objects.filter(pk=running.current_start.pk)
    assert starts.get().tries == 1
    look(place, running)
    assert not running.operations.active().exists()

    starts.update(tried_at=timezone.now() - timedelta(seconds=6))
    look(place, running)
    again = running.operations.active().get()
    assert (again.kind, again.source) == ("stop", "system")
    Operation.objects.filter(pk=again.pk).update(state="failed", code="process_stuck")
    Engine.objects.filter(pk=running.pk).update(observed="failed")

    starts.update(tries=6, tried_at=timezone.now() - timedelta(days=1))
    look(place, running, 2)
    assert not running.operations.active().exists()
    assert running.reason_code == "does_not_end"
    assert "6 tries" in running.reason

    stop = StopEngine(Actor(user=operator), running).run()
    assert starts.get().tries == 0
    assert place.drive(stop).state == "succeeded"
    running.refresh_from_db()
    assert running.observed == "stopped"


def test_an_engine_whose_key_cannot_be_read_says_so_and_stops_no_other(place, running):
    """Adopted while loading, and then the data key was lost: kvadmin cannot ask for its models."""
    mute = place.engine()
    assert place.start(mute).state == "succeeded"
    sealed = Sealed(Fernet(Fernet.generate_key()).encrypt(b"a key").decode())
    Engine.objects.filter(pk=mute.pk).update(api_key=sealed, observed="loading")
    mute.starts.update(ready_at=None, launcher="adopted", directory="")
    Engine.objects.filter(pk=mute.pk).update(name="a first one")
    for one in place.processes(running):
        os.kill(one.pid, signal.SIGKILL)
    look(place, running)
    assert running.observed == "failed"
    mute.refresh_from_db()
    assert (mute.observed, mute.reason_code) == ("loading", "secret_unreadable")
    assert "adopt it again" in mute.reason


def test_a_start_takes_a_new_key_for_one_that_cannot_be_read(place):
    engine = place.engine()
    sealed = Sealed(Fernet(Fernet.generate_key()).encrypt(b"a key").decode())
    Engine.objects.filter(pk=engine.pk).update(api_key=sealed)
    engine.refresh_from_db()
    assert place.start(engine).state == "succeeded"
    assert Engine.objects.get(pk=engine.pk).api_key


def test_a_step_that_needs_a_lost_secret_says_so(place):
    engine = place.engine()
    sealed = Sealed(Fernet(Fernet.generate_key()).encrypt(b"{}").decode())
    Revision.objects.filter(pk=engine.revision_id).update(secret_environment=sealed)
    operation = place.start(engine)
    assert (operation.state, operation.code) == ("failed", "secret_unreadable")
    assert "Enter the secret again" in operation.remedy
