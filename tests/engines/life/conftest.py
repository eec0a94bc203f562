"""Flows on this machine with the simulated engine; every process of a test is ended after it."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from engines.choices import HostAuth, HostKind, OperationKind
from engines.launch import remote
from engines.launch.identity import identity_of
from engines.launch.scan import Process
from engines.models import Engine, EngineStart, Host, Operation
from engines.operations import runner
from engines.operations.begin import begin_operation
from engines.ssh.local import local_session
from engines.ssh.session import Session
from kvadmin.actions import Actor
from tests.support import simulated_engine
from tests.support.factories import EngineFactory, EnvironmentFactory, HostFactory, RevisionFactory


def free_port() -> int:
    """A port that no outgoing connection takes by chance: below the range the kernel gives those."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as server, suppress(OSError):
            server.bind(("127.0.0.1", port))
            return port


class Place:
    """A host with a simulated vLLM, and what tests do to engines on it."""

    def __init__(self, host: Host, executable: Path, model: Path, connect: Callable[[Host], Session]):
        self.host, self.executable, self.model, self.connect = host, executable, model, connect
        self.vllm = EnvironmentFactory(
            host=host,
            path=str(executable.parent.parent),
            executable=str(executable),
            version="0.32.0+cpu",
        )

    @property
    def session(self) -> Session:
        return self.connect(self.host)

    def engine(self, *, extra: str = "", keep_running: bool = False, **behaviour: str) -> Engine:
        revision = RevisionFactory(
            model=str(self.model),
            served_names=["tiny"],
            values={"max_model_len": 4096},
            environment={f"SIM_{name.upper()}": value for name, value in behaviour.items()},
            extra_arguments=extra,
        )
        return EngineFactory(
            host=self.host,
            revision=revision,
            environment=self.vllm,
            port=free_port(),
            bind_address="127.0.0.1",
            keep_running=keep_running,
        )

    def begin(self, kind: OperationKind, engine: Engine, **parameters: object) -> Operation:
        return begin_operation(
            kind, actor=Actor.system(), host=self.host, engine=engine, parameters=parameters
        )

    def tick(self, operation: Operation) -> float | None:
        return runner.tick(operation.pk, connect=self.connect)

    def drive(self, operation: Operation, *, until: str = "", limit_s: float = 60) -> Operation:
        """Tick until the operation ends, or until its step ``until`` is the one to run."""
        give_up = time.monotonic() + limit_s
        while True:
            operation.refresh_from_db()
            if not operation.is_active:
                return operation
            if until and operation.steps.get(name=until).state == "running":
                return operation
            after = self.tick(operation)
            assert time.monotonic() < give_up, f"{operation} still at {operation.progress_text}"
            time.sleep(min(after or 0, 0.3))

    def start(self, engine: Engine, **parameters: object) -> Operation:
        engine.move("starting", only_from=("stopped", "failed"))
        operation = self.drive(self.begin(OperationKind.START, engine, **parameters))
        engine.refresh_from_db()
        return operation

    def stop(self, engine: Engine, **parameters: object) -> Operation:
        operation = self.drive(self.begin(OperationKind.STOP, engine, **parameters))
        engine.refresh_from_db()
        return operation

    def processes(self, engine: Engine) -> list[Process]:
        engine.refresh_from_db()
        if engine.current_start is None:
            return []
        identity = identity_of(engine.current_start)
        return remote.scan(self.session, [identity]).members(identity)

    def tell(self, engine: Engine, **values: object) -> None:
        httpx.post(f"{engine.base_url}/_sim", json=values, timeout=5).raise_for_status()


@pytest.fixture
def place(db, tmp_path: Path) -> Iterator[Place]:
    model = tmp_path / "model dir"
    model.mkdir()
    (model / "config.json").write_text("{}")
    host = HostFactory(
        kind=HostKind.LOCAL, auth=HostAuth.NONE, address="", work_dir=str(tmp_path / "work 'dir")
    )
    here = local_session()
    place = Place(host, simulated_engine.install(tmp_path / "env"), model, lambda _host: here)
    yield place
    for start in EngineStart.objects.all():
        remote.end_all(here, identity_of(start), grace_s=0)
