from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from engines.choices import EngineState
from engines.launch import remote
from engines.models import Operation, Transition
from engines.operations import runner


def failed(place, engine, **parameters) -> Operation:
    operation = place.start(engine, **parameters)
    assert operation.state == "failed"
    assert operation.remedy
    assert engine.observed == "failed"
    assert engine.reason == operation.message
    assert engine.reason_code == operation.code
    assert place.processes(engine) == []
    return operation


@pytest.mark.parametrize(
    ("kind", "code", "status", "words"),
    [
        ("oom", "cuda_oom", 1, "ran out of memory"),
        ("kv", "kv_too_small", 1, "4.5 GiB"),
        ("exit", "exited", 3, "exit status 3"),
        ("crash", "killed", 137, "137"),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_nothing(place, kind, code, status, words):
    engine = place.engine(fail=kind)
    operation = failed(place, engine)
    assert operation.code == code
    assert words in operation.message
    start = engine.current_start
    assert start.exit_status == status
    assert start.ended_at is not None
    assert "Loading safetensors" in start.last_lines


def test_a_flag_that_the_version_does_not_know_stops_the_start_before_it_begins(place):
    engine = place.engine(extra="--swap-spaces 8")
    operation = failed(place, engine)
    assert operation.code == "flags_refused"
    assert "--swap-spaces" in operation.message
    assert engine.current_start is None


def test_a_flag_that_vllm_refuses_all_the_same_is_named(place):
    engine = place.engine(extra="--swap-spaces 8")
    operation = failed(place, engine, override=["flags_refused"])
    assert operation.code == "unrecognized_args"
    assert "--swap-spaces" in operation.message
    assert engine.current_start.exit_status == 2


def test_flags_that_the_version_no_longer_has_are_left_out_and_said(place):
    engine = place.engine(extra="--swap-space 8 --disable-log-requests")
    operation = place.start(engine)
    assert operation.state == "succeeded", operation.message
    engine.refresh_from_db()
    assert not {"--swap-space", "--disable-log-requests"} & set(engine.current_start.command)
    told = [line.text for line in operation.lines.all()]
    assert [flag for flag in ("--swap-space", "--disable-log-requests") if any(flag in text for text in told)]


def test_a_start_that_hangs_is_given_up_at_its_limit(place):
    engine = place.engine(fail="hang")
    operation = failed(place, engine, load_limit_s=1)
    assert operation.code == "load_timeout"
    assert "Loading weights: 2 of 4 files" in operation.message


def test_a_taken_port_is_refused_before_anything_is_started(place):
    engine = place.engine()
    with socket.socket() as other:
        other.bind(("127.0.0.1", engine.port))
        other.listen()
        operation = failed(place, engine)
    assert operation.code == "port_taken"
    assert str(engine.port) in operation.message
    assert "pytest" in operation.message or "python" in operation.message
    assert engine.starts.count() == 0


def test_a_port_of_another_engine_is_said_to_be_one(place):
    one = place.engine()
    place.start(one)
    two = place.engine()
    # the row moved, the process did not
    type(two).objects.filter(pk=one.pk).update(port=one.port + 1)
    type(two).objects.filter(pk=two.pk).update(port=one.port)
    two.refresh_from_db()
    operation = failed(place, two)
    assert "another engine of kvadmin" in operation.message


def test_a_missing_model_is_refused(place):
    place.model = Path("/nowhere/model")
    assert failed(place, place.engine()).code == "model_missing"


def test_a_missing_environment_is_refused(place):
    place.executable.unlink()
    operation = failed(place, place.engine())
    assert operation.code == "environment_missing"
    assert str(place.executable) in operation.message


def test_a_dead_interpreter_is_refused(place):
    place.executable.write_text("#!/nowhere/python\n")
    assert failed(place, place.engine()).message == f"The Python behind {place.executable} is gone."


def test_only_safe_checks_can_be_overridden(place):
    (place.model / "config.json").unlink()
    engine = place.engine()
    assert failed(place, engine).code == "model_missing"
    assert place.start(engine, override=["model_missing"]).state == "succeeded"
    place.stop(engine)
    place.executable.unlink()
    assert (
        failed(place, engine, override=["environment_missing", "model_missing"]).code == "environment_missing"
    )


def test_every_check_is_in_the_log_of_the_operation(place):
    engine = place.engine()
    operation = place.start(engine)
    text = "\n".join(operation.lines.values_list("text", flat=True))
    assert f"Port {engine.port} is free" in text
    assert "no GPU is needed" in text
    assert [one["code"] for one in operation.scratch["checks"]][:2] == ["environment", "disk"]


def test_a_cancelled_start_is_stopped_by_an_operation_of_its_own(place, django_capture_on_commit_callbacks):
    engine = place.engine(ready_after="30")
    engine.move("starting", only_from=("stopped",))
    operation = place.drive(place.begin("start", engine), until="load")
    assert place.processes(engine)
    Operation.objects.filter(pk=operation.pk).update(cancel_requested=True)
    with django_capture_on_commit_callbacks(execute=False) as callbacks:
        place.tick(operation)
    operation.refresh_from_db()
    assert operation.state == "cancelled"
    engine.refresh_from_db()
    assert engine.observed == "stopping"
    assert engine.desired == "stopped"
    for callback in callbacks:
        callback()
    assert place.drive(engine.operations.active().get()).state == "succeeded"
    engine.refresh_from_db()
    assert engine.observed == "stopped"
    assert place.processes(engine) == []


def test_the_worker_can_die_at_any_moment_of_a_start(place):
    """Every tick is made by nobody who remembers the one before; a tick may also be made twice."""
    engine = place.engine()
    engine.move("starting", only_from=("stopped",))
    operation = place.begin("start", engine)
    kept, runner.SLICE_S = runner.SLICE_S, -1
    try:
        while Operation.objects.get(pk=operation.pk).is_active:
            place.tick(operation)
            steps = list(operation.steps.order_by("position"))
            done = [step for step in steps if step.state == "done"]
            if done and done[-1].name in {"prepare", "launch"} and done[-1].attempts == 1:
                # the worker died before it could write down that the step was done
                type(done[-1]).objects.filter(pk=done[-1].pk).update(state="running", finished_at=None)
            time.sleep(0.2)
    finally:
        runner.SLICE_S = kept
    engine.refresh_from_db()
    assert engine.observed == "ready"
    assert engine.starts.count() == 1
    assert len(place.processes(engine)) == 4
    assert operation.steps.get(name="launch").attempts == 2


def test_a_second_launch_of_one_start_starts_nothing(place):
    engine = place.engine()
    place.start(engine)
    start = engine.current_start
    before = [one.token for one in place.processes(engine)]
    again = remote.launch(
        place.session, start.directory, marker=str(start.marker), want="auto", unit=start.unit
    )
    assert again.fresh is False
    assert again.values["pid"] == start.pid
    assert [one.token for one in place.processes(engine)] == before


def test_a_launch_that_died_between_lock_and_start_is_made_good(place):
    engine = place.engine()
    engine.move("starting", only_from=("stopped",))
    operation = place.begin("start", engine)
    kept, runner.SLICE_S = runner.SLICE_S, -1
    try:
        while operation.steps.get(name="prepare").state != "done":
            place.tick(operation)
    finally:
        runner.SLICE_S = kept
    engine.refresh_from_db()
    lock = Path(engine.current_start.directory) / "lock"
    lock.mkdir()
    (lock / "owner").write_text("999999 1 some-other-boot\n")
    assert place.drive(operation).state == "succeeded"
    assert len(place.processes(engine)) == 4


def test_leftovers_of_an_earlier_start_are_ended_before_the_next(place):
    engine = place.engine(leave="1")
    place.start(engine)
    os.kill(engine.current_start.pid, signal.SIGKILL)
    engine.move(EngineState.FAILED, only_from=(EngineState.READY,))
    left = {one.pid for one in place.processes(engine)}
    assert left
    operation = place.start(engine)
    assert operation.state == "succeeded"
    assert not left & {one.pid for one in place.processes(engine)}
    assert "earlier start had left" in "\n".join(operation.lines.values_list("text", flat=True))
    assert Transition.objects.filter(engine=engine, to_state="ready").count() == 2


def test_a_systemd_unit_is_used_where_the_user_may_linger(place, tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    answers = {
        "systemctl": "#!/bin/sh\necho running\n",
        "loginctl": "#!/bin/sh\necho yes\n",
        "systemd-run": f"""#!/bin/sh
printf '%s\\n' "$@" >{tools}/asked
while [ $# -gt 0 ]; do
  case $1 in
    --setenv=*) export "${{1#--setenv=}}" ;;
    --*) ;;
    *) break ;;
  esac
  shift
done
setsid "$@" </dev/null >/dev/null 2>&1 &
""",
    }
    for name, text in answers.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    engine = place.engine()
    assert place.start(engine).state == "succeeded"
    assert engine.current_start.launcher == "systemd"
    asked = (tools / "asked").read_text().splitlines()
    assert f"--unit={engine.current_start.unit}" in asked
    assert {"--user", "--collect", "--property=KillMode=control-group"} <= set(asked)
    assert place.stop(engine).state == "succeeded"
    assert place.processes(engine) == []
