from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import httpx

from engines.launch.identity import identity_of


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] not in {"Z", "X"}


def test_it_starts_to_ready_and_serves_with_its_own_key_only(place):
    engine = place.engine()
    operation = place.start(engine)

    assert operation.state == "succeeded", (operation.message, list(operation.lines.values_list("text")))
    assert engine.observed == "ready"
    assert engine.served_names == ["tiny"]
    assert engine.max_model_len == 4096
    url = engine.base_url + "/v1/chat/completions"
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    assert httpx.post(url, json=body).status_code == 401
    answer = httpx.post(url, json=body, headers={"Authorization": f"Bearer {engine.api_key}"})
    assert answer.json()["usage"]["total_tokens"] == 4


def test_what_the_log_told_is_kept_with_the_start(place):
    engine = place.engine()
    place.start(engine)
    facts = engine.current_start.facts
    assert facts["kv_tokens"] == 794016
    assert facts["weights_gib"] == 15.27
    assert engine.current_start.vllm_version == "0.32.0"


def test_the_key_is_in_a_private_file_and_in_nothing_that_is_shown(place):
    engine = place.engine()
    operation = place.start(engine)
    start = engine.current_start

    env = Path(start.directory) / "env"
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    assert engine.api_key in env.read_text()
    assert stat.S_IMODE(Path(start.log_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(start.directory).stat().st_mode) == 0o700
    for one in place.processes(engine):
        assert engine.api_key.encode() not in Path(f"/proc/{one.pid}/cmdline").read_bytes()
    shown = [start.command, operation.parameters, operation.scratch, start.facts]
    shown += operation.lines.values_list("text", flat=True)
    assert engine.api_key not in str(shown)


def test_every_process_carries_the_marker_and_is_recorded_at_ready(place):
    engine = place.engine()
    place.start(engine)
    start = engine.current_start
    names = {one["name"] for one in start.processes}
    assert {"VLLM::EngineCor", "VLLM::Worker"} <= names  # the kernel keeps 15 characters
    assert start.pid in {one["pid"] for one in start.processes}
    assert {one.marker for one in place.processes(engine)} == {str(start.marker)}


def test_stop_leaves_no_process_and_keeps_the_exit_status(place):
    engine = place.engine()
    place.start(engine)
    pids = [one.pid for one in place.processes(engine)]
    assert len(pids) == 4

    operation = place.stop(engine)

    assert operation.state == "succeeded", operation.message
    assert engine.observed == "stopped"
    assert not [pid for pid in pids if alive(pid)]
    engine.current_start.refresh_from_db()
    assert engine.current_start.exit_status == 0
    assert engine.current_start.ended_at is not None
    assert "shutdown triggered" in engine.current_start.last_lines


def test_stop_ends_workers_that_their_leader_left(place):
    engine = place.engine(leave="1")
    place.start(engine)
    pids = [one.pid for one in place.processes(engine)]
    assert place.stop(engine).state == "succeeded"
    assert not [pid for pid in pids if alive(pid)]


def test_stop_ends_what_ignores_sigterm(place):
    engine = place.engine(stubborn="1")
    place.start(engine)
    pids = [one.pid for one in place.processes(engine)]
    operation = place.stop(engine, grace_s=1)
    assert operation.state == "succeeded", operation.message
    assert not [pid for pid in pids if alive(pid)]


def test_stop_finds_workers_of_a_leader_that_was_killed_alone(place):
    engine = place.engine()
    place.start(engine)
    os.kill(engine.current_start.pid, signal.SIGKILL)
    assert place.stop(engine).state == "succeeded"
    assert place.processes(engine) == []
    engine.current_start.refresh_from_db()
    assert engine.current_start.exit_status == 137


def test_a_restart_has_its_own_log_and_never_touches_the_last_one(place):
    engine = place.engine()
    place.start(engine)
    first = engine.current_start
    place.stop(engine)
    before = Path(first.log_path).read_bytes()
    place.start(engine)
    second = engine.current_start
    assert second.number == 2
    assert second.log_path != first.log_path
    assert Path(first.log_path).read_bytes() == before


def test_two_engines_run_side_by_side_and_stopping_one_leaves_the_other(place):
    one, two = place.engine(), place.engine()
    place.start(one)
    place.start(two)
    place.stop(one)
    assert place.processes(one) == []
    assert len(place.processes(two)) == 4
    assert httpx.get(two.base_url + "/health").status_code == 200


def test_it_says_which_paths_the_key_does_not_guard(place):
    engine = place.engine()
    place.start(engine)
    (finding,) = engine.current_start.facts["findings"]
    assert finding["code"] == "open_completion_path"
    assert "/invocations" in finding["text"]
    assert str(engine.port) in finding["remedy"]


def test_a_session_of_its_own_is_used_where_there_is_no_systemd(place):
    engine = place.engine()
    place.start(engine)
    assert engine.current_start.launcher == "session"
    sessions = {one.session for one in place.processes(engine)}
    assert sessions == {identity_of(engine.current_start).session}
