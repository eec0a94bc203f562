"""/healthz and /readyz of the console, for load balancers and the supervisor. They need no sign-in and
say nothing about the machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import redis
from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from kvadmin import valkey
from kvadmin.celery import QUEUES, heartbeat_key


@lru_cache(maxsize=1)
def _migrated() -> bool:
    """Raises while migrations are missing; once they are in, this process need not look again."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise _Missing
    return True


class _Missing(Exception):
    """Migrations are to be run."""


def database_state() -> tuple[str, str]:
    """What is wrong with the database and with its migrations; empty when nothing is."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1")
        _migrated()
    except DatabaseError:
        return "does not answer", ""
    except _Missing:
        return "", "are missing"
    return "", ""


def valkey_state() -> tuple[str, str]:
    """What is wrong with Valkey and with the workers; empty when nothing is."""
    try:
        beats = valkey.client().mget([heartbeat_key(queue) for queue in QUEUES])
    except redis.RedisError:
        return "does not answer", ""
    silent = [queue for queue, beat in zip(QUEUES, beats, strict=True) if beat is None]
    return "", f"none for {', '.join(silent)}" if silent else ""


def healthz(request: HttpRequest) -> HttpResponseBase:
    """The process answers; nothing else is asked."""
    return _plain(JsonResponse({"status": "ok"}))


def readyz(request: HttpRequest) -> HttpResponseBase:
    """200 when a person could work with it: database, migrations, Valkey, a worker for each queue."""
    database, migrations = database_state()
    broker, worker = valkey_state()
    wrong = {"database": database, "migrations": migrations, "valkey": broker, "worker": worker}
    ready = not any(wrong.values())
    checks = {name: reason or "ok" for name, reason in wrong.items()}
    return _plain(
        JsonResponse(
            {"status": "ready" if ready else "not ready", "checks": checks}, status=200 if ready else 503
        )
    )


def _plain(response: JsonResponse) -> JsonResponse:
    response["Cache-Control"] = "no-store"
    response["Content-Length"] = str(len(response.content))
    # asked every few seconds: "not ready" is an answer here, not an error to log
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


class Health:
    """Middleware: answers the two paths before anything looks at the Host header, which a load balancer
    fills with whatever address it has."""

    sync_capable = True
    async_capable = True
    paths = {"/healthz": healthz, "/readyz": readyz}

    def __init__(self, get_response: Callable):
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest):
        view = self.paths.get(request.path_info)
        if iscoroutinefunction(self):
            return self._answer(view, request)
        return view(request) if view else self.get_response(request)

    async def _answer(self, view: Callable | None, request: HttpRequest) -> HttpResponseBase:
        if view is None:
            return await self.get_response(request)
        if view is healthz:
            return healthz(request)
        return await sync_to_async(view)(request)
