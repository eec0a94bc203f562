"""Starts kvadmin's processes, keeps them running, and ends them."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from kvadmin.env import Environment
from kvadmin.services import valkey_password
from kvadmin.up import places, plan, postgres, proc, status, valkey
from kvadmin.up.child import Child, last_lines
from kvadmin.up.plan import ProcessSpec
from kvadmin.up.problems import CannotRun

#: failures in a row, before a process was ever ready, after which the start is given up
GIVE_UP_AFTER = 4
SERVER_START_S = 60
LOOK_EVERY_S = 0.5
ROTATE_EVERY_S = 60


class Stop(Exception):
    """A person or the system asked for the end."""


def url_answers(url: str, timeout: float = 3) -> bool:
    """Whether the address answers 200. The certificate is our own and is not checked here."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            host,
            port,
            timeout=timeout,
            context=ssl._create_unverified_context(),  # noqa: S323
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Supervisor:
    def __init__(self, env: Environment, say: Callable[[str], None]):
        self.env = env
        self.say = say
        self.run_id = uuid.uuid4().hex
        self.children: list[Child] = []
        self.written: status.UpStatus | None = None
        self.rotate_at = time.monotonic() + ROTATE_EVERY_S
        self.asked_to_stop = 0
        self.announced = False
        self._wake_read, self._wake_write = socket.socketpair()

    # signals

    def catch_signals(self) -> None:
        self._wake_write.setblocking(False)
        self._wake_read.setblocking(False)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def _on_stop(self, number: int, frame: object) -> None:
        self.asked_to_stop += 1

    def pause(self, seconds: float) -> None:
        """Sleep until a signal comes or the time is over. Raises Stop when asked to stop."""
        if not self.asked_to_stop:
            select.select([self._wake_read], [], [], seconds)
            with suppress(BlockingIOError):
                self._wake_read.recv(4096)
        if self.asked_to_stop:
            raise Stop

    # starting

    def spawn(self, spec: ProcessSpec) -> Child:
        child = Child(spec, self.run_id, self.env.home)
        self.children.append(child)
        child.start()
        self.record()
        return child

    def start_servers(self) -> None:
        """The embedded PostgreSQL and Valkey, as far as no URL names others; both answer on return."""
        if self.env.database_url:
            self.say("PostgreSQL: the server that DATABASE_URL names")
        else:
            place = places.postgres_place(self.env.home)
            self.say(f"PostgreSQL: data in {place.data}")
            tools = postgres.prepare(place)
            left = postgres.running(place)
            if left:
                proc.end(left, postgres.STOP_SIGNAL, 20)
            postgres.clear_stale(place)
            options = postgres.as_owner(place)
            child = self.spawn(
                ProcessSpec(
                    "postgres",
                    postgres.command(place, tools),
                    stop=postgres.STOP_SIGNAL,
                    patience_s=20,
                    popen=options,
                )
            )
            self.wait_for(child, lambda: postgres.answers(place))
            postgres.ensure_database(place)
        if self.env.valkey_url:
            self.say("Valkey: the server that VALKEY_URL names")
            return
        path = places.valkey_socket(self.env.home)
        password = valkey_password(self.env)
        self.say("Valkey")
        valkey.prepare(path)
        child = self.spawn(
            ProcessSpec(
                "valkey",
                valkey.command(),
                stop=valkey.STOP_SIGNAL,
                stdin=valkey.configuration(path, password).encode(),
            )
        )
        self.wait_for(child, lambda: valkey.answers(path, password))

    def wait_for(self, child: Child, ready: Callable[[], bool]) -> None:
        limit = time.monotonic() + SERVER_START_S
        while not ready():
            words = child.ended()
            if words or time.monotonic() > limit:
                what = words or f"does not answer after {SERVER_START_S} seconds"
                raise CannotRun(
                    f"{child.spec.name} {what}. The last lines of {child.log}:\n{last_lines(child.log)}"
                )
            self.pause(0.05)
        child.mark_running()
        self.record()

    def prepare(self) -> str:
        """Migrations, static files, the first administrator. Returns a password that was made, or ""."""
        self.say("Migrations, static files, first administrator")
        process = subprocess.Popen(  # noqa: S603
            plan.manage("prepare"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                self.pause(0.1)
        except Stop:
            process.terminate()
            process.communicate()
            raise
        out, err = process.communicate()
        if process.returncode:
            last = "\n".join(err.strip().splitlines()[-8:])
            raise CannotRun(f"The database could not be prepared:\n{last}")
        lines = out.strip().splitlines()
        return json.loads(lines[-1]).get("password", "") if lines else ""

    def start_applications(self) -> None:
        plan.granian_log_file(self.env.home).write_text(json.dumps(plan.granian_logging()))
        for spec in plan.applications(self.env):
            self.spawn(spec)

    # running

    def watch(self, on_ready: Callable[[], None]) -> None:
        """Until asked to stop: start again what ends, tell the state. ``on_ready`` is called once."""
        while True:
            for child in self.children:
                self.look_after(child)
            if not self.announced and self.all_ready():
                self.announced = True
                on_ready()
            self.record()
            if time.monotonic() > self.rotate_at:
                self.rotate_at = time.monotonic() + ROTATE_EVERY_S
                for child in self.children:
                    child.rotate_log()
            self.pause(LOOK_EVERY_S if self.announced else 0.2)

    def look_after(self, child: Child) -> None:
        words = child.ended()
        if words:
            wait = max(0.0, (child.start_at or 0) - time.monotonic())
            self.say(f"{child.spec.name} {words}; it starts again in {wait:.1f} s (log: {child.log})")
            if child.failures >= GIVE_UP_AFTER and not child.was_ready:
                raise CannotRun(
                    f"{child.spec.name} does not start: it {words}, {child.failures} times. "
                    f"The last lines of {child.log}:\n{last_lines(child.log)}"
                )
        if child.due():
            if child.spec.name == "postgres":
                postgres.clear_stale(places.postgres_place(self.env.home))
            child.start()
        if child.status.state == status.STARTING and self.is_ready(child):
            child.mark_running()

    def is_ready(self, child: Child) -> bool:
        """By its address where it has one; else by having run for a while."""
        if not child.running():
            return False
        if child.spec.ready_url:
            # the console's /readyz also speaks for the workers, which may come later than it
            return url_answers(child.spec.ready_url)
        return time.monotonic() - child.started_at > 2

    def all_ready(self) -> bool:
        return all(child.status.state == status.RUNNING for child in self.children)

    def record(self) -> None:
        who = proc.identity(os.getpid())
        now = status.UpStatus(
            self.run_id,
            os.getpid(),
            who.ticks if who else 0,
            self.env.console_url,
            self.env.gateway_url,
            [child.status for child in self.children],
        )
        if now == self.written:
            return
        try:
            status.write(self.env.home, now)
        except OSError as error:
            # without the record a later start finds less, but what runs goes on running
            self.say(f"{status.status_file(self.env.home)} cannot be written: {error.strerror}")
        self.written = now

    # stopping

    def stop(self) -> None:
        """End everything that was started: what serves people first, the servers they use last."""
        servers = [child for child in self.children if child.spec.name in {"postgres", "valkey"}]
        self._end([child for child in self.children if child not in servers])
        for child in reversed(servers):
            self._end([child])
        self.record()

    def _end(self, children: list[Child]) -> None:
        begun, asked = time.monotonic(), self.asked_to_stop
        for child in children:
            child.ask_to_end()
        while True:
            left = [child for child in children if child.running()]
            late = [child for child in left if time.monotonic() - begun > child.spec.patience_s]
            # a second Ctrl-C is a person who does not want to wait
            for child in left if self.asked_to_stop > max(asked, 1) else late:
                if child.process:
                    child.process.kill()
            if not left:
                break
            time.sleep(0.05)
        for child in children:
            child.kill_session()
            child.mark_stopped()
