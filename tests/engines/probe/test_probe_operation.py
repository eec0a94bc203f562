"""The probe as an operation: its steps, what it writes, and how errors become a host's state."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from django.utils import timezone, translation

from engines.actions.probe_host import ProbeHost
from engines.choices import HostKind, HostState, OperationKind, OperationState, StepState
from engines.models import EngineStart, GpuSample, ModelConfig, Operation, VllmEnvironment
from engines.models.host import VllmEnvironmentSource
from engines.operations import runner
from engines.ssh import keys
from engines.ssh.session import session_for
from kvadmin.actions import Actor, Conflict, Denied
from tests.engines.probe.test_scripts import environment
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory
from tests.support.processes import end_processes, processes_with, wait_until

pytestmark = pytest.mark.django_db


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def this_machine(home):
    return HostFactory(kind=HostKind.LOCAL, address="", auth="none", host_key="", state=HostState.NEW)


def probed(host, **kwargs) -> Operation:
    operation = ProbeHost(Actor.system(), host=host).run()
    for _tick in range(20):
        if runner.tick(operation.pk, **kwargs) is None:
            break
    operation.refresh_from_db()
    host.refresh_from_db()
    return operation


def steps(operation: Operation) -> dict[str, str]:
    return dict(operation.steps.values_list("name", "state"))


def test_it_writes_everything_it_found(this_machine, home, nvidia_smi):
    nvidia_smi("four_a100", pid1=1, pid2=2)
    environment(home / ".kvadmin" / "envs" / "vllm-0.32.0", "0.32.0")
    (home / "models" / "tiny").mkdir(parents=True)
    (home / "models" / "tiny" / "config.json").write_text("{}")
    this_machine.model_dirs = ["~/models"]
    this_machine.save()
    operation = probed(this_machine)
    assert operation.state == OperationState.SUCCEEDED, operation.message
    assert set(steps(operation).values()) == {StepState.DONE}
    host = this_machine
    assert host.state == HostState.ONLINE
    assert len(host.boot_id) == 36
    assert host.last_seen_at is not None
    assert host.facts_at is not None
    facts = host.facts
    assert facts["os"]["name"]
    assert [gpu["memory_used_mib"] for gpu in facts["gpus"]] == [74213, 74213, 6, 41500]
    assert facts["gpu_note"] == ""
    assert "marker" not in facts["gpus"][0]["processes"][0]
    assert facts["pythons"]
    assert [model["name"] for model in facts["models"]] == ["tiny"]
    assert facts["systemd_user"] in {True, False}
    made = VllmEnvironment.objects.get(host=host, path=str(home / ".kvadmin" / "envs" / "vllm-0.32.0"))
    assert (made.version, made.usable, made.source) == ("0.32.0", True, VllmEnvironmentSource.FOUND)
    assert made.executable.endswith("/bin/vllm")
    samples = GpuSample.objects.filter(host=host)
    assert sorted(samples.values_list("index", "memory_used_mib", "utilization")) == [
        (0, 74213, 98),
        (1, 74213, 97),
        (2, 6, 0),
        (3, 41500, 0),
    ]
    assert operation.steps.get(name="gpus").detail.startswith("4 GPUs: NVIDIA A100-SXM4-80GB.")
    assert any("GPU 1: process 2" in line.text for line in operation.lines.all())


def test_it_reads_the_shape_of_each_model(this_machine, home):
    folder = home / "models" / "my tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": 64}')
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"x" * 1000)
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"x" * 24)
    other = home / "models" / "odd"
    other.mkdir()
    (other / "config.json").write_text("no JSON")
    this_machine.model_dirs = ["~/models"]
    this_machine.save()
    ModelConfig.objects.create(host=this_machine, path="/gone", name="gone")
    operation = probed(this_machine)
    assert operation.state == OperationState.SUCCEEDED, operation.message
    (row,) = ModelConfig.objects.filter(host=this_machine)
    assert (row.name, row.path, row.weight_bytes) == ("my tiny", str(folder), 1024)
    assert row.config == {"model_type": "llama", "hidden_size": 64}


def test_no_gpu_is_a_fact_and_not_an_error(this_machine, nvidia_smi):
    nvidia_smi("mismatch")
    operation = probed(this_machine)
    assert operation.state == OperationState.SUCCEEDED
    assert this_machine.facts["gpus"] == []
    assert "Restart the host" in this_machine.gpu_note
    assert operation.steps.get(name="gpus").detail == this_machine.gpu_note
    with translation.override("zh-hans"):
        assert "Restart the host" not in this_machine.gpu_note


def test_processes_of_our_starts_are_ours(this_machine, nvidia_smi):
    nvidia_smi("four_a100", pid1=4242, pid2=4343)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    engine = EngineFactory(host=this_machine)
    EngineStart.objects.create(
        engine=engine, number=1, boot_id=boot_id, pid=1, processes=[{"pid": 4242, "ticks": 1, "name": "x"}]
    )
    EngineStart.objects.create(engine=engine, number=2, boot_id="another boot", pid=4343)
    probed(this_machine)
    ours = {
        process["pid"]: process["ours"] for gpu in this_machine.facts["gpus"] for process in gpu["processes"]
    }
    assert (ours[4242], ours[4343]) == (True, False)


def test_an_environment_that_is_gone_is_kept_as_unusable(this_machine):
    gone = EnvironmentFactory(host=this_machine, path="/gone/vllm", source=VllmEnvironmentSource.PROVISIONED)
    probed(this_machine)
    gone.refresh_from_db()
    assert (gone.usable, gone.source) == (False, VllmEnvironmentSource.PROVISIONED)
    assert "not found" in gone.note


def test_an_environment_that_is_back_is_usable_again(this_machine, home):
    path = home / ".kvadmin" / "envs" / "vllm-0.32.0"
    row = EnvironmentFactory(
        host=this_machine, path=str(path), usable=False, note="x", source=VllmEnvironmentSource.PROVISIONED
    )
    environment(path, "0.32.1")
    probed(this_machine)
    row.refresh_from_db()
    assert (row.usable, row.note, row.version) == (True, "", "0.32.1")
    assert row.source == VllmEnvironmentSource.PROVISIONED


@pytest.mark.parametrize(("command", "package"), [(False, True), (True, False)])
def test_an_incomplete_environment_is_not_usable(this_machine, home, command, package):
    environment(home / ".kvadmin" / "envs" / "x", "0.32.0", command=command, package=package)
    probed(this_machine)
    row = VllmEnvironment.objects.get(path=str(home / ".kvadmin" / "envs" / "x"))
    assert row.usable is False
    assert row.note


def test_an_environment_that_is_being_made_is_left_to_its_operation(this_machine, home):
    Operation.objects.create(kind=OperationKind.PROVISION, host=this_machine, state=OperationState.RUNNING)
    environment(home / ".kvadmin" / "envs" / "vllm-0.32.0", "0.32.0")
    probed(this_machine)
    assert not VllmEnvironment.objects.filter(path__endswith="vllm-0.32.0").exists()


def test_it_probes_over_ssh(sshd):
    host = sshd.host(state=HostState.NEW)
    operation = probed(host)
    assert operation.state == OperationState.SUCCEEDED, operation.message
    assert host.state == HostState.ONLINE
    assert host.facts["home"] == str(sshd.users.home("bash"))


def test_a_first_contact_asks_for_confirmation(sshd):
    host = sshd.host(host_key="", state=HostState.CONFIRM)
    with pytest.raises(Conflict, match="not confirmed"):
        ProbeHost(Actor.system(), host=host).run()


def test_a_changed_host_key_blocks_the_host(sshd):
    host = sshd.host()
    sshd.swap_host_key()
    operation = probed(host)
    assert (operation.state, operation.code) == (OperationState.FAILED, "host_key_changed")
    assert host.state == HostState.BLOCKED
    assert host.offered_key == sshd.host_key
    assert host.host_key != sshd.host_key
    assert keys.fingerprint(host.host_key) in host.state_text
    assert keys.fingerprint(host.offered_key) in host.state_text
    with pytest.raises(Conflict, match="another key"):
        ProbeHost(Actor.system(), host=host).run()


def test_refused_credentials_make_a_refused_host(sshd):
    host = sshd.host(private_key=keys.generate().private)
    operation = probed(host)
    assert (operation.state, operation.code) == (OperationState.FAILED, "sign_in_refused")
    assert host.state == HostState.REFUSED
    assert "authorized_keys" in host.state_text


def test_an_unreachable_host_changes_nothing_of_its_engines(sshd):
    host = sshd.host()
    engine = EngineFactory(host=host, observed="ready")
    sshd.stop()
    operation = ProbeHost(Actor.system(), host=host).run()
    assert runner.tick(operation.pk) is not None
    host.refresh_from_db()
    engine.refresh_from_db()
    assert host.state == HostState.UNREACHABLE
    assert "refuses connections" in host.state_text
    assert engine.observed == "ready"
    sshd.start()
    runner.tick(operation.pk)
    operation.refresh_from_db()
    host.refresh_from_db()
    assert operation.state == OperationState.SUCCEEDED
    assert (host.state, host.state_text) == (HostState.ONLINE, "")


@pytest.mark.parametrize("step", ["system", "gpus", "pythons", "environments", "models"])
def test_a_connection_cut_in_any_step_is_taken_up_again(sshd, step):
    host = sshd.host()
    mark = f"300.{time.monotonic_ns()}"
    cutters = []

    def cut_when_it_runs() -> None:
        if wait_until(lambda: processes_with(f"sleep {mark}"), 30):
            sshd.cut()
            end_processes(f"sleep {mark}")

    class Cutting:
        """Cuts the connection once, while the step's script runs."""

        def __init__(self, row):
            self._session = session_for(row)

        def run(self, script, **values):
            if not cutters and steps(operation)[step] == StepState.RUNNING:
                cutters.append(threading.Thread(target=cut_when_it_runs))
                cutters[0].start()
                script = f"sleep {mark}; exit"
            return self._session.run(script, **values)

    operation = ProbeHost(Actor.system(), host=host).run()
    for _tick in range(20):
        if runner.tick(operation.pk, connect=Cutting) is None:
            break
    operation.refresh_from_db()
    assert operation.state == OperationState.SUCCEEDED, operation.message
    cutters[0].join(30)
    assert operation.steps.get(name=step).attempts >= 2


def test_viewers_may_not_probe(viewer, outsider, this_machine):
    for user in (viewer, outsider):
        with pytest.raises(Denied):
            ProbeHost(Actor(user=user), host=this_machine).run()
    assert not Operation.objects.exists()


def test_operators_may_and_a_second_probe_is_a_conflict(operator, this_machine):
    operation = ProbeHost(Actor(user=operator, source="web"), host=this_machine).run()
    assert (operation.requested_by, operation.kind) == (operator, OperationKind.PROBE)
    assert operation.created_at <= timezone.now()
    with pytest.raises(Conflict):
        ProbeHost(Actor(user=operator, source="web"), host=this_machine).run()
