"""Servers that somebody else started: watched and stopped like others, never ended by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from django.utils import timezone

from engines.choices import EngineState, Launcher
from engines.launch import reconcile, remote
from engines.launch.scan import Identity
from engines.models import Engine, EngineStart


@pytest.fixture(params=["", "11111111-aaaa-4bbb-8ccc-222222222222"], ids=["unmarked", "anothers-marker"])
def adopted(place, request):
    """An engine whose server was started by hand, or by another kvadmin."""
    engine = place.engine()
    environment = {"PATH": os.environ["PATH"], "SPT_NOENV": "1"}
    if request.param:
        environment["KVADMIN_START"] = request.param
    server = subprocess.Popen(
        [str(place.executable), "serve", "m", "--port", str(engine.port), "--served-model-name", "tiny"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    transport = httpx.HTTPTransport(retries=20)
    with httpx.Client(transport=transport) as client:
        assert client.get(engine.base_url + "/health", timeout=30).status_code == 200
    ticks = int(Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[19])
    looked = remote.scan(place.session, [Identity(marker="-", leader=(server.pid, ticks), any_marker=True)])
    members = looked.members(Identity(marker="-", leader=(server.pid, ticks), any_marker=True))
    assert len(members) == 3
    start = EngineStart.objects.create(
        engine=engine,
        number=1,
        launcher=Launcher.ADOPTED,
        boot_id=looked.boot_id,
        pid=server.pid,
        start_ticks=ticks,
        processes=[one.record for one in members],
        launched_at=timezone.now(),
    )
    Engine.objects.filter(pk=engine.pk).update(
        current_start=start, desired="running", revision=None, api_key="", observed="loading"
    )
    engine.refresh_from_db()
    yield engine
    for one in members:
        try:
            os.kill(one.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    server.wait()


def look(place, engine):
    reconcile.reconcile_host(place.host.pk, connect=place.connect)
    engine.refresh_from_db()


def test_it_becomes_ready_when_it_answers(place, adopted):
    look(place, adopted)
    assert adopted.observed == "ready"
    assert adopted.served_names == ["tiny"]
    assert adopted.current_start.ready_at is not None
    assert not adopted.operations.exists()


def test_it_is_never_ended_for_not_answering(place, adopted):
    look(place, adopted)
    place.tell(adopted, health=500)
    for state in (EngineState.READY, EngineState.FAILED, EngineState.STOPPED, EngineState.UNREACHABLE):
        Engine.objects.filter(pk=adopted.pk).update(observed=state)
        look(place, adopted)
        assert len(place.processes(adopted)) == 3
        assert not adopted.operations.exists()


def test_its_workers_are_ended_when_its_leader_was_killed_alone(place, adopted):
    look(place, adopted)
    os.kill(adopted.current_start.pid, signal.SIGKILL)
    os.waitpid(adopted.current_start.pid, 0)
    look(place, adopted)
    assert adopted.observed == "failed"
    assert place.processes(adopted) == []


def test_it_is_stopped_like_any_other(place, adopted):
    look(place, adopted)
    assert place.stop(adopted).state == "succeeded"
    assert place.processes(adopted) == []
    assert adopted.observed == "stopped"
