"""``manage.py gateway``: the process on KVADMIN_GATEWAY_PORT. It loads no Django.

Several workers share the port by SO_REUSEPORT; one is started for each and again if it ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import sys
import time
from contextlib import suppress
from typing import Any

import psycopg
import structlog
import uvloop

from kvadmin import logs
from kvadmin.env import Environment, fill_secrets, read_environment
from kvadmin.services import database_settings
from routes.gateway.app import App
from routes.gateway.records import KeyRecord, Snapshot, UsageRecord

DATABASE_EVERY_S = 2.0
DATABASE_TIMEOUT_S = 3.0
DRAIN_S = 10.0
CONNECT_NAMES = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password", "NAME": "dbname"}

logger = structlog.get_logger("routes.gateway")


def connect_arguments(env: Environment) -> dict[str, Any]:
    found = database_settings(env)
    given = {ours: found.get(theirs) for theirs, ours in CONNECT_NAMES.items() if found.get(theirs)}
    return {**given, **found["OPTIONS"], "autocommit": True, "connect_timeout": int(DATABASE_TIMEOUT_S)}


class Database:
    """Whether PostgreSQL answers, asked every two seconds so that no request has to ask."""

    def __init__(self, env: Environment):
        self.arguments = connect_arguments(env)
        self.ok = False
        self.snapshot = Snapshot()

    @property
    def state(self) -> str:
        return "current" if self.ok else "loading"

    async def watch(self) -> None:
        connection: psycopg.AsyncConnection | None = None
        while True:
            try:
                if connection is None:
                    connection = await psycopg.AsyncConnection.connect(**self.arguments)
                await asyncio.wait_for(connection.execute("select 1"), DATABASE_TIMEOUT_S)
                self.ok = True
            except (psycopg.Error, OSError, TimeoutError) as error:
                if self.ok or connection is None:
                    logger.warning("the database does not answer", error=type(error).__name__)
                self.ok = False
                if connection is not None:
                    with suppress(psycopg.Error, OSError):
                        await connection.close()
                connection = None
            await asyncio.sleep(DATABASE_EVERY_S)


def _tls(env: Environment) -> ssl.SSLContext | None:
    if not env.tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(env.tls_cert, env.tls_key)
    return context


def listening_socket(env: Environment) -> socket.socket:
    """Shared by several workers only: with one, a second gateway on the port must fail, not share."""
    listener = socket.socket(socket.AF_INET6 if ":" in env.bind else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if env.gateway_workers > 1:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((env.bind, env.gateway_port))
    return listener


class Unlimited:
    """Limits, ledger, meters and access log of a gateway that knows no key yet, and so grants nothing."""

    headers: dict[str, str] = {}

    def take(self, key: KeyRecord, tokens: int, now: float) -> Unlimited:
        return self

    def settle(self, tokens: int) -> None:
        pass

    def release(self) -> None:
        pass

    def record(self, row: UsageRecord) -> None:
        pass

    observe = write = record

    def page(self) -> bytes:
        return b""


async def serve(env: Environment) -> None:
    loop = asyncio.get_running_loop()
    database = Database(env)
    watching = loop.create_task(database.watch())
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    nothing = Unlimited()
    app = App(
        loop,
        feed=database,
        limits=nothing,
        ledger=nothing,
        meters=nothing,
        access=nothing,
        pepper=env.pepper,
        proxies=env.proxies,
    )
    server = await loop.create_server(app.protocol, sock=listening_socket(env), backlog=4096, ssl=_tls(env))
    logger.info("the gateway listens", address=env.bind, port=env.gateway_port)
    await stopping.wait()
    server.close()
    await app.drain(DRAIN_S)
    watching.cancel()


def _worker(env: Environment) -> int:
    uvloop.run(serve(env))
    return 0


def _workers(env: Environment) -> int:
    """One forked worker for each; the parent only waits for them."""
    workers: set[int] = set()
    stopping = False

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while not stopping or workers:
        while not stopping and len(workers) < env.gateway_workers:
            pid = os.fork()
            if pid == 0:
                os._exit(_worker(env))
            workers.add(pid)
        pid, status = os.wait()
        workers.discard(pid)
        if not stopping:
            logger.error("a gateway worker ended", status=os.waitstatus_to_exitcode(status))
            time.sleep(0.5)
    return 0


def main(arguments: list[str] | None = None) -> int:
    env = fill_secrets(read_environment())
    logs.configure(logs.logging_settings(env))
    try:
        return _worker(env) if env.gateway_workers == 1 else _workers(env)
    except OSError as error:
        print(
            f"The gateway cannot listen on {env.bind} port {env.gateway_port} ({error.strerror}). "
            "Set KVADMIN_GATEWAY_PORT or KVADMIN_BIND.",
            file=sys.stderr,
        )
        return 1
