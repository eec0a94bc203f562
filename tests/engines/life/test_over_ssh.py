"""The flows over a real sshd: cut connections, odd shells, a full disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.launch import reconcile, remote
from engines.launch.identity import identity_of
from engines.models import Engine, EngineStart
from engines.ssh.session import Session, session_for
from tests.engines.life.conftest import Place
from tests.support import simulated_engine
from tests.support.sshd import USERS, Sshd

#: calls to the host that a start makes: reach, two of check, three files, launch, scan, load, ...
CALLS = range(10)


class Cutting:
    """A session whose connection is cut while its n-th call is under way (counted over reconnects)."""

    def __init__(self, sshd: Sshd, at: int):
        self.sshd, self.at, self.calls, self.cuts = sshd, at, 0, 0

    def connect(self, host) -> Session:
        return _CuttingSession(session_for(host), self)


class _CuttingSession:
    def __init__(self, session: Session, cutting: Cutting):
        self._session, self._cutting = session, cutting

    def __getattr__(self, name):
        method = getattr(self._session, name)
        if name not in {"run", "write_file", "read_range", "size"}:
            return method

        def call(*args, **options):
            cutting = self._cutting
            cutting.calls += 1
            timer = None
            if cutting.calls - 1 == cutting.at:
                cutting.cuts += 1
                timer = threading.Timer(0.02, cutting.sshd.cut)
                timer.start()
            try:
                return method(*args, **options)
            finally:
                if timer:
                    timer.join()

        return call


@pytest.fixture
def make_place(db, sshd, ssh_users) -> Iterator:
    """A Place on the sshd for a kind of user; every process is ended after the test."""
    shared = ssh_users.folder / "sim"
    executable = simulated_engine.install(shared)
    model = shared / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    places: list[Place] = []

    def make(kind: str = "bash", **values) -> Place:
        place = Place(sshd.host(kind, **values), executable, model, session_for)
        places.append(place)
        return place

    yield make
    for start in EngineStart.objects.select_related("engine__host"):
        remote.end_all(session_for(start.engine.host), identity_of(start), grace_s=0)


@pytest.mark.parametrize("kind", USERS)
def test_start_and_stop_work_for_every_shell_and_locale(make_place, kind):
    place = make_place(kind)
    engine = place.engine()
    operation = place.start(engine)
    assert operation.state == "succeeded", operation.message
    assert len(place.processes(engine)) == 4
    home = str(Path(engine.current_start.directory).parents[3])
    assert engine.current_start.directory.startswith(f"{home}/.kvadmin/engines/{engine.pk}/")
    assert place.stop(engine).state == "succeeded"
    assert place.processes(engine) == []


@pytest.mark.parametrize("at", CALLS)
def test_a_connection_cut_during_any_call_of_a_start_starts_one_engine(make_place, sshd, at):
    place = make_place()
    cutting = Cutting(sshd, at)
    place.connect = cutting.connect
    engine = place.engine()
    operation = place.start(engine)

    assert cutting.cuts == 1
    assert operation.state == "succeeded", operation.message
    assert engine.observed == "ready"
    assert engine.starts.count() == 1
    assert len(place.processes(engine)) == 4
    everything = remote.scan(session_for(place.host), [])
    assert everything.markers() == {str(engine.current_start.marker)}


@pytest.mark.parametrize("at", range(6))
def test_a_connection_cut_during_any_call_of_a_stop_leaves_nothing(make_place, sshd, at):
    place = make_place()
    engine = place.engine()
    place.start(engine)
    cutting = Cutting(sshd, at)
    place.connect = cutting.connect
    assert place.stop(engine).state == "succeeded"
    assert cutting.cuts == 1
    assert place.processes(engine) == []


def test_a_host_lost_in_the_middle_leaves_the_engine_unknown_and_it_is_found_again(
    make_place, sshd, monkeypatch
):
    place = make_place()
    engine = place.engine(ready_after="2")
    engine.move("starting", only_from=("stopped",))
    operation = place.drive(place.begin("start", engine), until="load")
    flow_steps = {step.name: step for step in _steps()}
    object.__setattr__(flow_steps["load"], "patience_s", 0.5)
    try:
        sshd.stop()
        operation = place.drive(operation)
    finally:
        object.__setattr__(flow_steps["load"], "patience_s", 300)
    assert operation.state == "failed"
    assert operation.code == "host_unreachable"
    engine.refresh_from_db()
    assert engine.observed == "unreachable"

    sshd.start()
    Engine.objects.filter(pk=engine.pk).update(desired="running")
    reconcile.reconcile_host(place.host.pk)
    assert place.drive(engine.operations.active().get()).state == "succeeded"
    engine.refresh_from_db()
    assert engine.observed == "ready"
    assert engine.starts.count() == 1
    assert len(place.processes(engine)) == 4


def test_a_lost_connection_leaves_a_running_engine_alone(make_place, sshd):
    place = make_place()
    engine = place.engine()
    place.start(engine)
    before = [one.token for one in place.processes(engine)]
    sshd.stop()
    for _time in range(3):
        reconcile.reconcile_host(place.host.pk)
    engine.refresh_from_db()
    assert engine.observed == "unreachable"
    sshd.start()
    reconcile.reconcile_host(place.host.pk)
    engine.refresh_from_db()
    assert engine.observed == "ready"
    assert [one.token for one in place.processes(engine)] == before


def test_a_changed_host_key_starts_nothing_and_ends_nothing(make_place, sshd):
    place = make_place()
    engine = place.engine()
    place.start(engine)
    before = [one.token for one in place.processes(engine)]
    sshd.swap_host_key()
    for _time in range(3):
        reconcile.reconcile_host(place.host.pk)
    engine.refresh_from_db()
    assert engine.observed == "unreachable"
    assert engine.reason_code == "host_key_changed"
    place.host.host_key = sshd.host_key
    place.host.save()
    reconcile.reconcile_host(place.host.pk)
    engine.refresh_from_db()
    assert engine.observed == "ready"
    assert [one.token for one in place.processes(engine)] == before


def test_a_full_disk_is_a_sentence_and_starts_nothing(make_place, full_disk):
    server, folder = full_disk
    place = make_place(work_dir=f"{folder}/kvadmin", port=server.port, host_key=server.host_key)
    engine = place.engine()
    (Path(folder) / "filler").write_bytes(b"x" * 60000)
    operation = place.start(engine)
    assert operation.state == "failed"
    assert engine.observed == "failed"
    assert operation.code in {"disk_full", "host_disk_full", "work_dir"}
    assert operation.remedy
    assert place.processes(engine) == []


def _steps():
    from engines.operations.base import flow_for

    return flow_for("start").steps
