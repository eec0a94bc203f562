"""The Session contract, over SSH to every kind of login shell and on this machine."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from engines.ssh import command
from engines.ssh.errors import (
    CommandTimeout,
    HostDiskFull,
    HostFileDenied,
    HostFileMissing,
    HostShellUnusable,
    HostUnreachable,
)
from engines.ssh.local import local_session
from engines.ssh.pool import PooledLine
from engines.ssh.shell import ShellSession
from tests.support.processes import end_processes, processes_with, wait_until
from tests.support.sshd import USERS


def over_ssh(sshd, kind="bash", **values) -> ShellSession:
    return ShellSession(PooledLine(sshd.login(kind, **values)), "test-host")


@pytest.fixture(params=["local", *USERS])
def session(request):
    if request.param == "local":
        return local_session()
    return over_ssh(request.getfixturevalue("sshd"), request.param)


AWKWARD = [
    "a b",
    "",
    "it's",
    '"$HOME"',
    "`id`",
    "$(id)",
    "back\\slash",
    "!bang",
    "line\nbreak\n\n",
    "grün 模型",
    "-n",
    "%s",
    "~",
]


def test_it_passes_arguments_as_they_are(session):
    result = session.run('for a in "$@"; do printf "%s\\0" "$a"; done', args=AWKWARD)
    assert result.stdout.split("\0")[:-1] == AWKWARD
    assert result.status == 0


def test_it_returns_status_and_both_streams_without_noise(session):
    result = session.run("echo out; echo err >&2; exit 37")
    assert (result.status, result.stdout, result.stderr) == (37, "out\n", "err\n")


def test_the_script_reads_the_rest_of_standard_input(session):
    data = bytes(range(256)) * 4000
    result = session.run("wc -c; cat >/dev/null", stdin=data)
    assert result.stdout.strip() == str(len(data))


def test_a_script_that_leaves_its_input_unread_does_not_block(session):
    assert session.run("echo done", stdin=b"x" * 5_000_000).stdout == "done\n"


def test_messages_are_english_whatever_the_locale(session):
    result = session.run("ls /nope; echo $LC_ALL", timeout_s=20)
    assert "No such file or directory" in result.stderr
    assert result.stdout == "C\n"


if "german" in USERS:

    def test_the_german_user_really_has_a_german_locale(sshd):
        result = over_ssh(sshd, "german").run("unset LC_ALL; LANGUAGE=de ls /nope")
        assert "nicht" in result.stderr


def test_a_broken_script_is_a_status_not_an_error(session):
    result = session.run("if then (")
    assert result.status != 0
    assert "yntax error" in result.stderr


def test_it_starts_in_the_home_folder(session):
    result = session.run('[ "$(pwd -P)" = "$(cd ~ && pwd -P)" ] && echo home')
    assert result.stdout == "home\n"


def test_script_arguments_and_input_are_in_no_process_list(session):
    secret = "s3cr3t-of-this-test"
    result = session.run(
        'IFS= read -r given; ps -ww -e -o args; echo "$1 $given" | tr a-z A-Z # ' + secret,
        args=[secret],
        stdin=secret.encode() + b"\n",
    )
    assert result.stdout.endswith(f"{secret} {secret}\n".upper())
    assert "IFS= read -r k" in result.stdout
    assert secret not in result.stdout


def test_a_hanging_command_is_ended_on_the_host(session):
    mark = f"9{time.monotonic_ns() % 10**8}"
    with pytest.raises(CommandTimeout) as caught:
        session.run("sleep $1 & sleep $1; echo never", args=[mark], timeout_s=1)
    assert caught.value.remedy
    assert wait_until(lambda: not processes_with(f"sleep {mark}")), processes_with(mark)
    assert session.run("echo alive").stdout == "alive\n"


def test_the_host_ends_a_script_whose_caller_is_gone(sshd, monkeypatch):
    monkeypatch.setattr(command, "WATCHDOG_GRACE_S", 0)
    session = over_ssh(sshd)
    mark = f"6{time.monotonic_ns() % 10**8}"
    thread = threading.Timer(0.5, sshd.cut)
    thread.start()
    with pytest.raises(HostUnreachable):
        session.run("sleep $1 & sleep $1", args=[mark], timeout_s=3)
    assert processes_with(f"sleep {mark}")
    assert wait_until(lambda: not processes_with(f"sleep {mark}"))


def test_what_a_script_detaches_lives_on_and_does_not_hold_it_up(session):
    mark = f"8{time.monotonic_ns() % 10**8}"
    result = session.run("setsid sleep $1 & echo $!", args=[mark], timeout_s=20)
    assert wait_until(lambda: processes_with(f"sleep {mark}"))
    session.run("kill $1", args=[result.stdout.strip()])
    assert wait_until(lambda: not processes_with(f"sleep {mark}"))


def test_nothing_is_left_running_after_a_run(session):
    session.run("true", timeout_s=7654)
    assert wait_until(lambda: not processes_with("sleep 7664"))


def test_big_output_is_bounded_and_does_not_block(session):
    result = session.run("head -c 30000000 /dev/zero; head -c 9000000 /dev/zero >&2; exit 5", timeout_s=60)
    assert (len(result.stdout), len(result.stderr), result.status) == (8 * 2**20, 8 * 2**20, 5)
    assert result.truncated


def test_a_file_is_written_whole_with_its_mode_and_folder(session):
    path = f"~/.kvadmin-test-{os.getpid()}/a b/file"
    session.write_file(path, b"one", 0o640)
    session.write_file(path, b"two\n", 0o600)
    assert session.size(path) == 4
    assert session.read_range(path, 0, 100) == b"two\n"
    listing = session.run(
        'cd "$1" && stat -c "%a %F" . file && ls -A | wc -l',
        args=[session.run('dirname "$HOME/${1#"~/"}"', args=[path]).stdout.strip()],
    )
    assert listing.stdout == "700 directory\n600 regular file\n1\n"
    session.run('rm -rf "$HOME/.kvadmin-test-$1"', args=[str(os.getpid())])


def test_ranges_of_a_large_file(session):
    path = session.run("mktemp").stdout.strip()
    session.run('head -c 100000000 /dev/zero >"$1"; printf "the very end" >>"$1"', args=[path], timeout_s=60)
    assert session.size(path) == 100_000_012
    assert session.read_range(path, 100_000_000, 1000) == b"the very end"
    assert session.read_range(path, 100_000_004, 4) == b"very"
    assert session.read_range(path, 50_000_000, 300_000) == bytes(300_000)
    assert session.read_range(path, 100_000_012, 10) == b""
    assert session.read_range(path, 200_000_000, 10) == b""
    session.run('rm "$1"', args=[path])


def test_a_missing_file_says_so(session):
    assert session.size("/nope/nothing") is None
    with pytest.raises(HostFileMissing, match="/nope/nothing"):
        session.read_range("/nope/nothing", 0, 10)


def test_a_file_that_may_not_be_written_says_so(session):
    with pytest.raises(HostFileDenied, match="may not use"):
        session.write_file("/sys/kvadmin/file", b"x")


def test_a_full_disk_leaves_nothing_behind(full_disk):
    server, folder = full_disk
    session = over_ssh(server)
    session.write_file(f"{folder}/kept", b"kept")
    with pytest.raises(HostDiskFull) as caught:
        session.write_file(f"{folder}/kept", b"x" * 300_000)
    assert caught.value.code == "host_disk_full"
    assert session.read_range(f"{folder}/kept", 0, 100) == b"kept"
    assert session.run('ls -A "$1"', args=[folder]).stdout == "kept\n"


def test_a_cut_connection_is_unreachable_and_the_next_run_works(sshd):
    session = over_ssh(sshd)
    mark = f"7{time.monotonic_ns() % 10**8}"
    errors: list[BaseException] = []

    def run() -> None:
        try:
            session.run("sleep $1", args=[mark], timeout_s=60)
        except HostUnreachable as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert wait_until(lambda: processes_with(f"sleep {mark}"))
    assert sshd.cut()
    thread.join(20)
    assert [type(error) for error in errors] == [HostUnreachable]
    assert session.run("echo again").stdout == "again\n"
    end_processes(f"sleep {mark}")


def test_a_connection_cut_while_idle_is_not_noticed_by_the_caller(sshd):
    session = over_ssh(sshd)
    session.run("true")
    sshd.cut()
    assert session.run("echo again").stdout == "again\n"


def test_a_connection_cut_in_the_middle_of_a_write_leaves_the_old_file(sshd):
    session = over_ssh(sshd)
    folder = session.run("mktemp -d").stdout.strip()
    session.write_file(f"{folder}/f", b"old")
    stop = threading.Event()

    def cut_when_it_grows() -> None:
        while not stop.is_set():
            if any(path.stat().st_size > 3 for path in Path(folder).glob(".kvadmin-*")):
                sshd.cut()
                return
            time.sleep(0.002)

    thread = threading.Thread(target=cut_when_it_grows)
    thread.start()
    with pytest.raises(HostUnreachable):
        session.write_file(f"{folder}/f", b"x" * 60_000_000)
    stop.set()
    thread.join(10)
    assert session.read_range(f"{folder}/f", 0, 10) == b"old"
    assert wait_until(lambda: session.run('ls -A "$1"', args=[folder]).stdout == "f\n")


def test_a_host_that_is_gone_silent_times_out(sshd):
    session = over_ssh(sshd)
    session.run("true")
    with sshd.silent(), pytest.raises(HostUnreachable):
        session.run("true", timeout_s=1)


def test_many_threads_share_one_connection(sshd):
    session = over_ssh(sshd)
    results: list[str] = []

    def work(number: int) -> None:
        results.append(session.run("echo $1", args=[str(number)]).stdout.strip())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(results, key=int) == [str(number) for number in range(24)]


def test_a_server_that_allows_one_session_is_waited_for(start_sshd):
    server = start_sshd("MaxSessions 1")
    session = over_ssh(server)
    results: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(session.run("sleep 0.2; echo ok", timeout_s=30).stdout)
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == ["ok\n"] * 3


def test_a_server_that_turns_new_connections_away_is_tried_again(start_sshd):
    import socket

    server = start_sshd("MaxStartups 1:100:1")
    waiting = socket.create_connection(("127.0.0.1", server.port))
    waiting.recv(10)
    threading.Timer(0.8, waiting.close).start()
    assert over_ssh(server).run("echo in").stdout == "in\n"


def test_an_account_without_a_shell_says_so(start_sshd):
    server = start_sshd("ForceCommand echo This account is closed.")
    with pytest.raises(HostShellUnusable, match=r"It printed: This account is closed\."):
        over_ssh(server).run("true")


def test_a_forked_child_opens_its_own_connection(sshd):
    session = over_ssh(sshd)
    assert session.run("echo parent").stdout == "parent\n"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fresh = over_ssh(sshd)
            status = 0 if fresh.run("echo child").stdout == "child\n" else 2
        finally:
            os._exit(status)
    _pid, waited = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(waited) == 0
    assert session.run("echo parent again").stdout == "parent again\n"


def test_local_scripts_see_nothing_of_kvadmins_environment(monkeypatch):
    monkeypatch.setenv("KVADMIN_SECRET_KEY", "never")
    monkeypatch.setenv("DATABASE_URL", "postgres://never")
    monkeypatch.setenv("VIRTUAL_ENV", "/never")
    result = local_session().run("env")
    assert "never" not in result.stdout
    assert "HOME=" in result.stdout
