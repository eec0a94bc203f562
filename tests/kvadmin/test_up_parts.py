"""The supervisor's pure parts."""

from __future__ import annotations

import os
import subprocess
import sys

from kvadmin.env import Environment
from kvadmin.up import backoff, leftovers, plan, proc, status
from kvadmin.up.child import exit_words, last_lines
from kvadmin.up.preflight import listening_inodes, port_holder
from kvadmin.up.status import ProcessStatus, UpStatus
from kvadmin.up.valkey import configuration


def test_it_waits_longer_after_each_failure_up_to_a_limit():
    assert [backoff.delay(n) for n in (1, 2, 3, 4, 7, 100)] == [0.5, 1, 2, 4, 30, 30]


def test_a_process_that_ran_well_starts_afresh():
    assert backoff.failures_after(3, ran_s=2) == 4
    assert backoff.failures_after(3, ran_s=61) == 1


def test_it_reads_a_stat_line_with_brackets_and_blanks_in_the_name():
    line = "42 (a) b (c) S 1 41 40 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 777 1 2 3"
    assert proc.parse_stat(line) == proc.Stat("S", 1, 41, 40, 777)


def test_a_pid_with_other_ticks_is_another_process():
    me = proc.identity(os.getpid())
    assert proc.alive(me)
    assert not proc.alive(proc.Identity(me.pid, me.ticks + 1))


def test_it_tells_an_end_in_words():
    assert exit_words(3) == "ended with status 3"
    assert exit_words(-9) == "ended by SIGKILL"


def test_a_status_survives_writing_and_a_cut_file_is_none(tmp_path):
    (tmp_path / "run").mkdir()
    told = UpStatus("r", 1, 2, "http://c", "http://g", [ProcessStatus("console", restarts=2)])
    status.write(tmp_path, told)
    assert status.read(tmp_path) == told
    text = status.status_file(tmp_path).read_text()
    assert status.decode(text[:-20]) is None
    assert status.decode("{}") is None
    assert status.decode("") is None


def test_a_dead_supervisors_processes_are_told_as_stopped(tmp_path):
    (tmp_path / "run").mkdir()
    gone = UpStatus("r", 1, 2, "", "", [ProcessStatus("console", "running", pid=1, ticks=3)])
    status.write(tmp_path, gone)
    assert [item.state for item in status.read_status(tmp_path)] == ["stopped"]
    assert status.read_status(tmp_path / "elsewhere") == []


def start_marked(
    run: str, code: str = "import time; print(1, flush=True); time.sleep(60)"
) -> subprocess.Popen:
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, plan.RUN_MARKER: run},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    child.stdout.readline()
    return child


def test_leftovers_are_known_by_session_and_marker():
    ours, another_run = start_marked("this"), start_marked("other")
    try:
        record = UpStatus(
            "this",
            1,
            2,
            "",
            "",
            [ProcessStatus("worker", pid=ours.pid), ProcessStatus("beat", pid=another_run.pid)],
        )
        found = leftovers.find(record)
        assert found == {"worker": [proc.identity(ours.pid)]}
        leftovers.end(found, 5)
        assert ours.wait(5) == -15
        assert another_run.poll() is None
    finally:
        for child in (ours, another_run):
            child.kill()
            child.wait()


def test_a_job_with_a_session_of_its_own_is_no_leftover():
    code = (
        "import subprocess, sys, time\n"
        "job = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "print(job.pid, flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, plan.RUN_MARKER: "this"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    job = proc.identity(int(child.stdout.readline()))
    try:
        leftovers.end(
            leftovers.find(UpStatus("this", 1, 2, "", "", [ProcessStatus("worker", pid=child.pid)])), 5
        )
        assert child.wait(5) == -15
        assert proc.alive(job)
    finally:
        proc.end(job)


def test_it_finds_who_listens_on_a_port():
    import socket

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        assert port_holder(holder.getsockname()[1]).startswith(f"process {os.getpid()} (")


def test_it_reads_the_kernels_table_of_sockets():
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 4711 1 0 100 0\n"
        "   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000 0 4712 1 0 20 4\n"
    )
    assert listening_inodes(table, 8080) == {"4711"}
    assert listening_inodes(table, 8081) == set()


def test_valkeys_configuration_quotes_what_it_is_given(tmp_path):
    text = configuration(tmp_path / 'a "b" c' / "valkey.sock", "p")
    assert f'unixsocket "{tmp_path}/a \\"b\\" c/valkey.sock"' in text
    assert "port 0\n" in text


def test_no_password_stands_on_a_command_line():
    env = Environment(KVADMIN_ADMIN_PASSWORD="hunter2", DATABASE_URL="postgres://u:hunter2@h/x")
    words = [word for spec in plan.applications(env) for word in spec.command]
    assert not any("hunter2" in word for word in words)


def test_a_hanging_host_cannot_delay_a_poll():
    ops, poll = plan.workers()
    assert ops.command[ops.command.index("-Q") + 1] == "ops"
    assert poll.command[poll.command.index("-Q") + 1] == "poll,rollup"


def test_it_shows_the_end_of_a_log(tmp_path):
    (tmp_path / "log").write_text("\n".join(str(n) for n in range(10000)))
    assert last_lines(tmp_path / "log", 2) == "9998\n9999"
    assert last_lines(tmp_path / "none") == ""
