from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid

import pytest

from engines.launch import remote
from engines.launch.scan import (
    Files,
    Identity,
    Process,
    Scan,
    ScanIncomplete,
    parse_scan,
)
from engines.ssh.local import local_session

BOOT = "11111111-2222-3333-4444-555555555555"
MARKER = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER = "bbbbbbbb-0000-4000-8000-000000000002"


def process(pid: int, *, parent: int = 1, session: int = 1, ticks: int = 100, **more) -> Process:
    return Process(pid=pid, parent=parent, session=session, ticks=ticks, state=more.pop("state", "S"), **more)


def scan(*processes: Process, files: Files | None = None) -> Scan:
    found = {MARKER: files} if files else {}
    return Scan(boot_id=BOOT, files=found, processes={one.pid: one for one in processes})


def pids(found: Scan, **identity) -> list[int]:
    identity.setdefault("boot_id", BOOT)
    return [one.pid for one in found.members(Identity(marker=MARKER, **identity))]


def test_a_marker_makes_a_process_ours():
    assert pids(scan(process(5, marker=MARKER), process(6), process(7, marker=OTHER))) == [5]


def test_a_recorded_process_is_ours_only_with_its_start_ticks():
    found = scan(process(5, ticks=100), process(6, ticks=999))
    assert pids(found, records=frozenset({(5, 100), (6, 100)})) == [5]


def test_records_of_another_boot_count_for_nothing():
    found = scan(process(5, ticks=100))
    assert pids(found, records=frozenset({(5, 100)}), boot_id="other") == []


def test_a_recorded_number_that_another_start_has_now_is_not_ours():
    found = scan(process(5, ticks=100, marker=OTHER))
    assert pids(found, records=frozenset({(5, 100)})) == []


def test_a_session_counts_only_through_a_member_known_otherwise():
    stranger = process(6, session=50)
    assert pids(scan(stranger), session=50) == []
    assert pids(scan(stranger, process(7, session=50, marker=MARKER)), session=50) == [6, 7]


def test_descendants_are_ours_whatever_their_environment_says():
    found = scan(process(5, marker=MARKER), process(6, parent=5), process(7, parent=6), process(8, parent=9))
    assert pids(found) == [5, 6, 7]


def test_the_unit_makes_a_process_ours():
    found = scan(process(5, unit="kvadmin-1-aaaaaaaa"), process(6, unit="kvadmin-1-bbbbbbbb"))
    assert pids(found, unit="kvadmin-1-aaaaaaaa") == [5]


def test_a_zombie_is_gone():
    assert pids(scan(process(5, marker=MARKER, state="Z"))) == []


def test_the_leader_is_first_and_known_from_the_pid_file():
    files = Files(present=True, boot_id=BOOT, pid=9, ticks=100, wrapper=3, wrapper_ticks=100)
    found = scan(process(3, marker=MARKER), process(9, marker=MARKER, parent=3), files=files)
    assert pids(found) == [9, 3]
    assert found.leader(Identity(marker=MARKER)).pid == 9


@pytest.mark.parametrize("text", ["", "boot\tx\n", "boot\tx\nproc\t1\t0\t1\t1\tS\t1\t-\t-\tinit\n", "end\n"])
def test_an_answer_that_was_cut_is_not_taken_for_nothing(text):
    with pytest.raises(ScanIncomplete):
        parse_scan(text)


@pytest.fixture
def child():
    """A process with a marker, whose own child has lost its environment."""
    marker = str(uuid.uuid4())
    code = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env={});"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], env={"KVADMIN_START": marker}, stdout=subprocess.PIPE
    )
    grandchild = int(parent.stdout.readline())
    yield marker, parent, grandchild
    for pid in (parent.pid, grandchild):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    parent.wait()
    parent.stdout.close()


def test_the_script_finds_marked_processes_and_their_descendants(child):
    marker, parent, grandchild = child
    identity = Identity(marker=marker)
    members = remote.scan(local_session(), [identity]).members(identity)
    assert {one.pid for one in members} == {parent.pid, grandchild}


def test_a_reused_process_number_is_not_signalled(child):
    _marker, parent, _grandchild = child
    session = local_session()
    boot = remote.scan(session, []).boot_id
    stale = process(parent.pid, ticks=1)
    assert remote.send_signal(session, boot, [stale], "KILL") == {parent.pid: "other"}
    assert remote.end(session, boot, [stale], grace_s=0) == []
    assert parent.poll() is None


def test_nothing_is_signalled_after_a_reboot(child):
    marker, parent, _grandchild = child
    session = local_session()
    identity = Identity(marker=marker)
    members = remote.scan(session, [identity]).members(identity)
    remote.send_signal(session, BOOT, members, "KILL")
    remote.end(session, BOOT, members, grace_s=0)
    time.sleep(0.1)
    assert parent.poll() is None
