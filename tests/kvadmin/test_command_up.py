"""`manage.py up` on a real machine: one start serves the tests that only look."""

from __future__ import annotations

import http.cookiejar
import json
import os
import pwd
import re
import shutil
import signal
import socket
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from kvadmin.up import proc
from kvadmin.up.places import postgres_place
from kvadmin.up.status import RUNNING, STOPPED, read_status
from tests.support.up import Up, get, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = {"postgres", "valkey", "console", "gateway", "worker", "poller", "beat"}


@pytest.fixture
def up(tmp_path):
    # a blank in the path: people have those
    with running(tmp_path / "kvadmin home") as one:
        yield one


def test_it_starts_and_stops_everything(up):
    up.start()
    said = up.wait_ready()

    assert f"Console  {up.console_url}/" in said
    assert f"Gateway  {up.gateway_url}/v1" in said
    assert set(up.status()) == NAMES
    assert {item.state for item in up.status().values()} == {RUNNING}
    assert up.ready() == {
        "status": "ready",
        "checks": {"database": "ok", "migrations": "ok", "valkey": "ok", "worker": "ok"},
    }
    assert get(f"{up.gateway_url}/readyz")[0] == 200
    assert json.loads(get(f"{up.gateway_url}/v1/models")[1])["error"]["code"] == "invalid_api_key"

    # embedded servers answer nobody over the network, and nobody else on this machine
    assert {item.pid for item in up.status().values()} >= listening_pids(up)
    assert (up.home / "run").stat().st_mode & 0o777 == 0o700
    place = postgres_place(up.home)
    assert place.sockets.stat().st_mode & 0o777 == 0o700
    everything = [proc.command_line(who.pid) for who in up.processes()]
    assert not any((up.home / "secrets" / "valkey_password").read_text() in line for line in everything)

    # a second start says where the first is
    second = Up(up.home)
    second.environment = up.environment
    second.output = up.home.parent / "second.out"
    said = second.refused()
    assert f"already runs here, as process {up.process.pid}: console {up.console_url}" in said
    assert up.process.poll() is None

    assert up.interrupt() == 0
    assert "Stopped." in up.said()
    assert up.processes() == []
    assert {item.state for item in read_status(up.home)} == {STOPPED}

    # the second time it neither makes an administrator nor loses anything
    first_password = up.password()
    up.start()
    said = up.wait_ready()
    assert "password" not in said
    assert sign_in(up, first_password)
    assert up.interrupt() == 0
    assert up.processes() == []


def listening_pids(up: Up) -> set[int]:
    """Pids of this home's processes that hold the console's and gateway's ports, by their sessions."""
    sessions = set()
    for who in up.processes():
        seen = proc.stat(who.pid)
        inodes = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A":
                    inodes.add(f"socket:[{fields[9]}]")
        if seen and set(proc.open_files(who.pid)) & inodes:
            sessions.add(seen.session)
    names = {item.name for item in up.status().values() if item.pid in sessions}
    assert names == {"console", "gateway"}
    return sessions


def sign_in(up: Up, password: str) -> bool:
    """Through the sign-in page, as a browser does: true when there is a session afterwards."""
    cookies = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    address = f"{up.console_url}/account/login/"
    with browser.open(address, timeout=60) as page:
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.read().decode())[1]
    form = {"csrfmiddlewaretoken": token, "login": "admin", "password": password}
    with browser.open(address, urllib.parse.urlencode(form).encode(), timeout=60) as answer:
        assert answer.status == 200
    return any(cookie.name == "sessionid" for cookie in cookies)


def test_it_takes_the_first_password_from_the_environment(tmp_path):
    with running(tmp_path / "home", KVADMIN_ADMIN_PASSWORD="staple battery horse") as up:
        up.start()
        assert "password" not in up.wait_ready()
        assert sign_in(up, "staple battery horse")
        # only the preparation was given it
        for item in up.status().values():
            assert "KVADMIN_ADMIN_PASSWORD" not in proc.environ(item.pid)
        logs = "".join(path.read_text() for path in (up.home / "log").iterdir())
        assert "staple battery horse" not in logs


def test_it_starts_again_what_ended(up):
    up.start()
    up.wait_ready()
    for name in ("worker", "gateway", "console", "valkey", "postgres"):
        before = up.status()[name]
        os.kill(before.pid, signal.SIGKILL)
        up.wait(
            lambda name=name, before=before: (
                up.status()[name].state == RUNNING and up.status()[name].pid != before.pid
            )
        )
        after = up.status()[name]
        assert (after.restarts, after.last_exit) == (1, "ended by SIGKILL")
    up.wait(lambda: up.ready()["status"] == "ready", 60)
    assert up.interrupt() == 0
    assert up.processes() == []


def test_it_takes_over_from_a_supervisor_that_was_killed(up):
    up.start()
    up.wait_ready()
    os.kill(up.process.pid, signal.SIGKILL)
    up.process.wait()
    orphans = up.processes()
    assert len(orphans) >= len(NAMES)
    assert get(f"{up.console_url}/healthz")[0] == 200

    up.start()
    said = up.wait_ready()
    assert "An earlier kvadmin was killed and left" in said
    assert not any(proc.alive(who) for who in orphans)
    assert up.ready()["status"] == "ready"
    assert up.interrupt() == 0
    assert up.processes() == []


def test_it_starts_over_stale_pid_files(up):
    up.start()
    up.wait_ready()
    assert up.interrupt() == 0
    # as after a power cut, with the old numbers now belonging to somebody else: this process
    place = postgres_place(up.home)
    (place.data / "postmaster.pid").write_text(
        f"{os.getpid()}\n{place.data}\n{int(time.time())}\n5432\n{place.sockets}\n\n"
    )
    (place.sockets / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
    record = json.loads((up.home / "run" / "up.json").read_text())
    me = proc.identity(os.getpid())
    for item in record["processes"]:
        item.update(pid=me.pid, ticks=me.ticks, state="running")
    (up.home / "run" / "up.json").write_text(json.dumps(record))

    up.start()
    up.wait_ready()
    assert up.interrupt() == 0


def test_it_uses_the_servers_that_are_named(tmp_path):
    named = {name: os.environ[name] for name in ("DATABASE_URL", "VALKEY_URL")}
    import psycopg

    database = f"up_{os.getpid()}"
    with psycopg.connect(named["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"create database {database}")
    url = named["DATABASE_URL"].replace("/kvadmin?", f"/{database}?")
    try:
        with running(tmp_path / "home", DATABASE_URL=url, VALKEY_URL=named["VALKEY_URL"]) as up:
            up.start()
            up.wait_ready()
            assert set(up.status()) == NAMES - {"postgres", "valkey"}
            assert up.interrupt() == 0
            assert up.processes() == []
    finally:
        with psycopg.connect(named["DATABASE_URL"], autocommit=True) as connection:
            connection.execute(f"drop database {database} with (force)")


def test_ctrl_c_during_the_start_leaves_nothing(up):
    up.start()
    up.wait(lambda: "Valkey" in up.said())
    assert up.interrupt() == 0
    assert up.processes() == []


def test_two_starts_at_once_make_one(up):
    second = Up(up.home)
    second.environment, second.output = up.environment, up.home.parent / "second.out"
    up.start()
    second.start()
    ends = [None, None]
    limit = time.monotonic() + 60
    while ends == [None, None] and time.monotonic() < limit:
        ends = [up.process.poll(), second.process.poll()]
        time.sleep(0.1)
    loser, winner = (up, second) if ends[0] is not None else (second, up)
    assert loser.process.returncode == 1
    assert "already" in loser.said()
    winner.wait_ready()
    assert winner.interrupt() == 0


@pytest.fixture
def taken():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_it_says_who_has_its_port(tmp_path, taken):
    with running(tmp_path / "home", KVADMIN_PORT=str(taken)) as up:
        said = up.refused()
    assert f"Port {taken} is taken by process {os.getpid()} (" in said
    assert "set KVADMIN_PORT to a free port" in said


@pytest.fixture
def open_folder():
    """A folder that any user can reach; pytest's own are for its user alone."""
    folder = Path(tempfile.mkdtemp(prefix="kvadmin-plain-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def test_a_plain_user_needs_no_root(open_folder):
    home = open_folder / "home"
    home.mkdir()
    plain = []
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        # may read what only root can (this Python, this checkout), and is a plain user in all else
        plain = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
        plain += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    with running(home, prefix=plain, HOME=str(home)) as up:
        up.start()
        up.wait_ready()
        owners = {Path(f"/proc/{item.pid}").stat().st_uid for item in up.status().values()}
        assert owners == {home.stat().st_uid}
        assert (home / "postgres" / "data" / "PG_VERSION").exists()
        assert (home / "run" / "pg").stat().st_mode & 0o777 == 0o700
        assert up.interrupt() == 0
        assert up.processes() == []
