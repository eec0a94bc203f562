"""Discovery and adoption for real: a double of vLLM that runs on this machine and listens."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import suppress

import pytest
from django.urls import reverse

from engines.actions.adopt_engine import AdoptEngine
from engines.actions.discover_engines import DiscoverEngines
from engines.choices import EngineState, HostKind, Launcher, OperationState
from engines.models import Engine, Host
from engines.operations import runner
from kvadmin.actions import Actor, Conflict, Denied, Invalid
from kvadmin.models import AuditEvent
from tests.support import simulated_engine
from tests.support.factories import EnvironmentFactory, HostFactory

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(300)]
KEY = "sk-of-the-server"


def free_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


@pytest.fixture
def host():
    return HostFactory(name="here", kind=HostKind.LOCAL, address="", username="", host_key="")


@pytest.fixture
def server(tmp_path):
    """Starts the double with more arguments; gives (process, port, log path)."""
    started = []

    def start(*arguments, environment=None):
        executable = simulated_engine.install(tmp_path / "venv")
        port, log = free_port(), tmp_path / "by hand.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [executable, "serve", "/models/qwen", "--port", str(port), "--served-model-name", "qwen",
                 *arguments],
                stdout=out, stderr=out, start_new_session=True,
                env={"PATH": os.environ["PATH"], "SIM_READY_AFTER": "0", **(environment or {})},
            )  # fmt: skip
        started.append(process)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
            except OSError:
                time.sleep(0.05)
            else:
                return process, port, log
        raise AssertionError(log.read_text())

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def discover(host, actor=None):
    operation = DiscoverEngines(actor or Actor.system(), host=host).run()
    while runner.tick(operation.pk) is not None:
        pass
    operation.refresh_from_db()
    assert (operation.state, operation.message) == (OperationState.SUCCEEDED, "")
    return operation


def found(operation, process):
    return next((each for each in operation.scratch["servers"] if each["pid"] == process.pid), None)


def test_a_running_server_is_found_and_adopted_without_a_restart(host, server, tmp_path, operator):
    process, port, log = server()
    environment = EnvironmentFactory(host=host, path=str(tmp_path / "venv"))
    row = found(discover(host), process)
    assert (row["port"], row["address"], row["log_path"], row["log_readable"]) == (
        port, "127.0.0.1", str(log), True,
    )  # fmt: skip
    assert row["answers"]["served_names"] == ["qwen"]
    engine = AdoptEngine(Actor(user=operator), host=host, pid=process.pid, name="by-hand").run()
    engine = Engine.objects.get(pk=engine.pk)
    assert (engine.observed, engine.desired, engine.revision) == (EngineState.READY, "running", None)
    assert (engine.port, engine.served_names, engine.environment) == (port, ["qwen"], environment)
    assert engine.vllm_version == simulated_engine.VERSION
    start = engine.current_start
    assert (start.launcher, start.pid, start.log_path) == (Launcher.ADOPTED, process.pid, str(log))
    assert start.start_ticks == row["ticks"]
    assert start.boot_id
    assert start.command[2:5] == ["serve", "/models/qwen", "--port"]
    assert process.pid in [each["pid"] for each in start.processes]
    assert process.poll() is None
    assert found(discover(host), process) is None
    assert engine.transitions.get().to_state == EngineState.READY


def test_a_key_in_the_environment_is_taken_over_and_shown_nowhere(host, server, operator, client):
    process, _port, _log = server(environment={"VLLM_API_KEY": KEY})
    operation = discover(host)
    assert found(operation, process)["answers"]["models"] == 401
    engine = AdoptEngine(Actor(user=operator), host=host, pid=process.pid, name="guarded").run()
    assert (engine.api_key, engine.observed) == (KEY, EngineState.READY)
    assert KEY not in str(operation.scratch)
    assert KEY not in str(list(operation.lines.values_list("text", flat=True)))
    assert KEY not in str(AuditEvent.objects.get(verb="engine.adopt").after)


def test_a_key_that_is_not_the_servers_is_refused_at_its_field(host, server, operator):
    process, _port, _log = server(environment={"VLLM_API_KEY": KEY})
    discover(host)
    with pytest.raises(Invalid) as refused:
        AdoptEngine(
            Actor(user=operator), host=host, pid=process.pid, name="x", api_key='wrong"; echo key'
        ).run()
    assert refused.value.field == "api_key"
    assert not Engine.objects.exists()


def test_a_process_that_ended_is_not_adopted(host, server, operator):
    process, _port, _log = server()
    discover(host)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(Conflict) as refused:
        AdoptEngine(Actor(user=operator), host=host, pid=process.pid, name="gone").run()
    assert refused.value.code == "process_gone"


def test_what_was_not_discovered_is_not_adopted(host, operator):
    with pytest.raises(Conflict) as refused:
        AdoptEngine(Actor(user=operator), host=host, pid=1, name="init").run()
    assert refused.value.code == "not_discovered"


def test_only_who_may_change_engines_adopts(host, viewer, outsider):
    for person in (viewer, outsider):
        with pytest.raises(Denied):
            AdoptEngine(Actor(user=person), host=host, pid=1, name="x").run()
        with pytest.raises(Denied):
            DiscoverEngines(Actor(user=person), host=host).run()


def test_the_pages_show_what_was_found_and_adopt_it(client, host, server, operator, viewer, outsider):
    process, _port, _log = server()
    discover(host)
    url = reverse("engines:host_adopt", args=[host.pk, process.pid])
    client.force_login(viewer)
    page = client.get(reverse("engines:host_detail", args=[host.pk])).content.decode()
    assert "qwen" in page
    assert url not in page
    assert client.get(url).status_code == 403
    client.force_login(outsider)
    assert client.post(url, {"name": "x"}).status_code == 403
    client.force_login(operator)
    assert url in client.get(reverse("engines:host_detail", args=[host.pk])).content.decode()
    assert client.get(url).context["form"].initial["name"] == "qwen"
    assert "Give the engine a name" not in client.get(url).content.decode()
    answer = client.post(url, {"name": ""})
    assert answer.status_code == 200
    assert not Engine.objects.exists()
    client.post(url, {"name": "by-hand"})
    assert Engine.objects.get().name == "by-hand"
    assert Host.objects.get(pk=host.pk).engines.count() == 1
