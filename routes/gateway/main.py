"""``manage.py gateway``: the process on KVADMIN_GATEWAY_PORT. It loads no Django.

Several workers share the port by SO_REUSEPORT; one is started for each and again if it ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import resource
import signal
import socket
import ssl
import sys
import time
from contextlib import suppress
from typing import Any

import structlog
import uvloop

from kvadmin import logs
from kvadmin.env import Environment, fill_secrets, read_environment
from kvadmin.services import database_settings, valkey_url
from routes.gateway.accesslog import AccessLog
from routes.gateway.app import App
from routes.gateway.condition import checks, samples
from routes.gateway.healthfile import HealthFile
from routes.gateway.limits import Limits
from routes.gateway.meters import Meters, Sampled
from routes.gateway.monthly import MonthCounter
from routes.gateway.sharedresponses import SharedResponses
from routes.gateway.shipper import Shipper
from routes.gateway.snapshot import SnapshotFeed
from routes.gateway.spool import Ledger

CONNECT_S = 5
#: how long requests have to end once the gateway is told to
DRAIN_S = 10.0
#: and after them the usage rows, to reach the database
SHIP_S = 5.0
#: one of several workers takes connections when it knows its keys, or after this long
LISTEN_S = 5.0
BACKLOG = 4096
CONNECT_NAMES = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password", "NAME": "dbname"}
PR_SET_PDEATHSIG = 1

logger = structlog.get_logger("routes.gateway")


def allow_open_files() -> None:
    """As many as the machine lets this process have: each connection is one, and the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connect_arguments(env: Environment) -> dict[str, Any]:
    found = database_settings(env)
    given = {ours: found.get(theirs) for theirs, ours in CONNECT_NAMES.items() if found.get(theirs)}
    return {**given, **found["OPTIONS"], "connect_timeout": CONNECT_S}


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


def refuse_taken_port(env: Environment) -> None:
    """Raises OSError while something listens there, also another gateway that would share the port."""
    with socket.socket(socket.AF_INET6 if ":" in env.bind else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((env.bind, env.gateway_port))


class Worker:
    """One worker's parts. ``number`` counts from 0 and stays when a worker is replaced; one that ``replaces``
    another leaves the port to those beside it for as long as it does not know its keys."""

    def __init__(self, env: Environment, number: int, *, replaces: bool = False):
        connect = connect_arguments(env)
        base = env.home / "gateway"
        self.env, self.replaces = env, replaces
        self.feed = SnapshotFeed(
            connect, data_keys=list(filter(None, env.data_keys.split(","))), stale_max_s=env.stale_max
        )
        self.ledger = Ledger(base / "spool", max_bytes=env.spool_mb << 20)
        self.shipper = Shipper(self.ledger, connect)
        self.limits = Limits(
            valkey_url(env),
            workers=env.gateway_workers,
            number=number,
            monthly_used=MonthCounter(connect),
        )
        # a gateway is what answers on one port: another one beside it counts for itself
        self.meters = Meters(base / "metrics" / str(env.gateway_port), self._sample)
        self.access = AccessLog()
        self.responses = SharedResponses(valkey_url(env))
        self.health = HealthFile(base / "health" / str(env.gateway_port))
        self.app: App | None = None

    def _sample(self) -> Sampled:
        app = self.app
        return samples(
            self.feed,
            self.limits,
            self.ledger,
            self.shipper,
            self.responses,
            in_flight=len(app.exchanges) if app else 0,
            connections=len(app.connections) if app else 0,
            ejected=sum(target.health.pause_s > 0 for target in app.targets.all()) if app else 0,
        )

    async def serve(self) -> int:
        """Until SIGTERM; 1 if a part of it ended by itself, which no part should."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        env = self.env
        app = self.app = App(
            loop,
            feed=self.feed,
            limits=self.limits,
            ledger=self.ledger,
            meters=self.meters,
            access=self.access,
            pepper=env.pepper,
            proxies=env.proxies,
            checks=lambda: checks(self.feed, self.limits, self.ledger, self.shipper, self.responses),
            responses=self.responses,
            health=self.health.of,
        )
        listener = listening_socket(env)
        running = (self.feed, self.limits, self.shipper, self.meters, self.responses)
        parts = [loop.create_task(part.run()) for part in running]
        parts.append(loop.create_task(self._settle_memory()))
        told = loop.create_task(stopping.wait())
        if env.gateway_workers > 1:
            await self._until_loaded(told, parts)
        server = await loop.create_server(app.protocol, sock=listener, backlog=BACKLOG, ssl=_tls(env))
        logger.info("the gateway listens", address=env.bind, port=env.gateway_port)
        failed = await self._until_one_ends(told, parts[:-1])
        server.close()
        await app.drain(DRAIN_S)
        for part in (told, *parts):
            part.cancel()
        await asyncio.gather(told, *parts, return_exceptions=True)
        if not await self.shipper.drain(SHIP_S):
            logger.info("usage rows wait in the spool for the next start")
        self.access.close()
        self.meters.close()
        self.health.close()
        self.ledger.close()
        return 1 if failed else 0

    async def _until_loaded(self, told: asyncio.Task[bool], parts: list[asyncio.Task[None]]) -> None:
        loaded = asyncio.get_running_loop().create_task(self.feed.loaded.wait())
        limit = None if self.replaces else LISTEN_S
        # the last part ends by itself once all is loaded
        waited = [told, loaded, *parts[:-1]]
        await asyncio.wait(waited, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        loaded.cancel()

    @staticmethod
    async def _until_one_ends(told: asyncio.Task[bool], parts: list[asyncio.Task[None]]) -> bool:
        done, _ = await asyncio.wait([told, *parts], return_when=asyncio.FIRST_COMPLETED)
        failed = [part for part in done if part is not told]
        for part in failed:
            logger.error("a part of the gateway ended", exc_info=part.exception())
        return bool(failed)

    async def _settle_memory(self) -> None:
        """Keys stay for good: the collector of garbage need not look at them again and again."""
        await self.feed.loaded.wait()
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)


async def _serve(env: Environment, number: int, replaces: bool) -> int:
    return await Worker(env, number, replaces=replaces).serve()


def _worker(env: Environment, number: int = 0, *, replaces: bool = False) -> int:
    return uvloop.run(_serve(env, number, replaces))


def _end_with(parent: int) -> None:
    """However the parent ends: a worker of its own would share the port with those of the next gateway."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _workers(env: Environment) -> int:
    """One forked worker for each; the parent only waits for them."""
    refuse_taken_port(env)
    workers: dict[int, int] = {}
    parent = os.getpid()
    stopping = False
    begun = 0

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while not stopping or workers:
        missing = sorted(set(range(env.gateway_workers)) - set(workers.values()))
        while not stopping and missing:
            number = missing.pop(0)
            pid = os.fork()
            if pid == 0:
                _end_with(parent)
                os._exit(_worker(env, number, replaces=begun >= env.gateway_workers))
            workers[pid] = number
            begun += 1
        pid, status = os.wait()
        workers.pop(pid, None)
        if not stopping:
            logger.error("a gateway worker ended", status=os.waitstatus_to_exitcode(status))
            time.sleep(0.5)
    return 0


def main(arguments: list[str] | None = None) -> int:
    env = fill_secrets(read_environment())
    logs.configure(logs.logging_settings(env))
    allow_open_files()
    try:
        return _worker(env) if env.gateway_workers == 1 else _workers(env)
    except OSError as error:
        print(
            f"The gateway cannot listen on {env.bind} port {env.gateway_port} ({error.strerror}). "
            "Set KVADMIN_GATEWAY_PORT or KVADMIN_BIND.",
            file=sys.stderr,
        )
        return 1
