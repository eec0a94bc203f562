"""Streams through the server that `up` runs: Granian with kvadmin.asgi, over sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import reverse

from engines.choices import HostAuth, HostKind, OperationState
from engines.models import EngineStart, OperationLine, OperationStep
from kvadmin.env import BASE_DIR, Environment
from kvadmin.up import plan
from tests.support.api import BASE, Api
from tests.support.factories import EngineFactory, HostFactory, OperationFactory
from tests.support.processes import wait_until
from tests.support.up import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

#: how this server's connections are told apart in pg_stat_activity
NAME = "kvadmin-streams"


def database_url() -> str:
    """The tests' own database, as a process beside the tests names it."""
    place = connection.settings_dict
    words = {"host": place["HOST"], "port": place["PORT"], "application_name": NAME}
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in words.items() if value)
    who = quote(place["USER"]) + (f":{quote(place['PASSWORD'], safe='')}" if place["PASSWORD"] else "")
    return f"postgres://{who}@/{place['NAME']}?{query}"


@pytest.fixture
def port(transactional_db, tmp_path) -> Iterator[int]:
    """Where the console answers, from a process of its own."""
    [port] = free_ports(1)
    home = Path(os.environ["KVADMIN_HOME"])
    (home / "run").mkdir(exist_ok=True)
    env = Environment(KVADMIN_HOME=str(home), KVADMIN_PORT=port)
    plan.granian_log_file(home).write_text(json.dumps(plan.granian_logging()))
    spec = plan.console(env)
    log = tmp_path / "console.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            spec.command,
            cwd=BASE_DIR,
            env={**os.environ, "DATABASE_URL": database_url(), "KVADMIN_PORT": str(port)},
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        assert wait_until(lambda: process.poll() is not None or answers(port), 60), log.read_text()
        assert process.poll() is None, log.read_text()
        yield port
    finally:
        process.send_signal(spec.stop)
        try:
            process.wait(spec.patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert "Traceback" not in log.read_text(), log.read_text()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


class Stream:
    """An open text/event-stream, as a script reads it."""

    def __init__(self, port: int, path: str, headers: dict[str, str]):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.connection.request("GET", path, headers=headers)
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"].startswith("text/event-stream")

    def event(self) -> dict[str, str]:
        """The next event: its fields."""
        fields: dict[str, str] = {}
        while "data" not in fields:
            block = []
            while (line := self.response.readline().decode()) not in {"\n", ""}:
                block.append(line.rstrip("\n"))
            assert block, "the stream ended"
            pairs = [line.partition(": ") for line in block if not line.startswith(":")]
            fields = {}
            for name, _colon, value in pairs:
                fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        return fields

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def connections_in_use() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [NAME])
        return cursor.fetchone()[0]


@pytest.fixture
def operation(transactional_db):
    operation = OperationFactory(state=OperationState.RUNNING)
    OperationStep.objects.create(operation=operation, position=0, name="connect")
    return operation


def test_an_operation_is_followed_left_and_taken_up_again(port, operation, viewer):
    lines = [OperationLine.objects.create(operation=operation, text=f"line {n}") for n in range(2)]
    path, headers = f"{BASE}operations/{operation.uuid}/events", Api(viewer, "read").headers
    stream = Stream(port, path, headers)
    events = [stream.event() for _n in range(3)]
    assert [event["event"] for event in events] == ["line", "line", "operation"]
    stream.close()
    again = Stream(port, path, {**headers, "Last-Event-ID": str(lines[0].pk)})
    line = again.event()
    assert (line["id"], json.loads(line["data"])["text"]) == (str(lines[1].pk), "line 1")
    assert json.loads(again.event()["data"])["uuid"] == str(operation.uuid)
    operation.state = OperationState.FAILED
    operation.save()
    assert json.loads(again.event()["data"])["state"] == "failed"
    assert again.event()["event"] == "end"
    again.close()


def test_more_streams_than_database_connections_leave_the_console_usable(port, operation, viewer):
    headers = Api(viewer, "read").headers
    most = settings.CONSOLE_CONNECTIONS
    streams = [Stream(port, f"{BASE}operations/{operation.uuid}/events", headers) for _n in range(most + 5)]
    assert [stream.event()["event"] for stream in streams] == ["operation"] * len(streams)
    request = urllib.request.Request(f"http://127.0.0.1:{port}{BASE}operations/", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
    assert connections_in_use() < most / 2
    for stream in streams:
        stream.close()


@pytest.fixture
def start(transactional_db, tmp_path):
    """A start on this machine whose log is a file here."""
    host = HostFactory(kind=HostKind.LOCAL, auth=HostAuth.NONE, address="", work_dir=str(tmp_path))
    path = tmp_path / "engine.log"
    path.write_bytes(b"first\n")
    return EngineStart.objects.create(engine=EngineFactory(host=host), number=1, log_path=str(path))


def browser_of(person) -> dict[str, str]:
    client = Client()
    client.force_login(person)
    return {"Cookie": f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"}


def test_a_log_is_followed_and_taken_up_again(port, start, viewer):
    path, headers = reverse("engines:engine_log_stream", args=[start.engine_id]), browser_of(viewer)
    stream = Stream(port, path, headers)
    first = stream.event()
    assert (first["event"], first["id"], first["data"].strip()) == ("lines", "6", "first")
    with Path(start.log_path).open("ab") as log:
        log.write("zweite Zeile, 缓存\n".encode())
    second = stream.event()
    assert second["data"].strip() == "zweite Zeile, 缓存"
    stream.close()
    again = Stream(port, path, {**headers, "Last-Event-ID": first["id"]})
    assert again.event() == second
    again.close()


def test_a_large_log_is_downloaded_whole_without_being_held_whole(port, start, viewer):
    size = 64 * 2**20
    with Path(start.log_path).open("r+b") as log:
        log.truncate(size)
    address = f"http://127.0.0.1:{port}" + reverse("engines:engine_log_download", args=[start.engine_id])
    before = peak_memory(port)
    request = urllib.request.Request(address, headers=browser_of(viewer))
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.read(6) == b"first\n"
        assert sum(len(piece) for piece in iter(lambda: answer.read(2**20), b"")) == size - 6
    assert peak_memory(port) - before < size / 2


def peak_memory(port: int) -> int:
    """The most that the server's processes have held so far, bytes."""
    peaks = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"--port {port} " in (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                lines = (folder / "status").read_text().splitlines()
                peaks += [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]
    return max(peaks)
