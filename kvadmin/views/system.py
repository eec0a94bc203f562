"""The system page: kvadmin's own processes, its services, versions and disk."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import django
from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from kvadmin.up import status
from kvadmin.version import VERSION
from kvadmin.views.base import PermissionView


@dataclass(frozen=True)
class Service:
    """A service kvadmin needs: is it there, and what is lost without it."""

    name: str
    tone: str
    state: str
    text: str = ""


def database_service() -> Service:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW server_version")
            version = cursor.fetchone()[0]
    except DatabaseError as error:
        return Service("PostgreSQL", "bad", _("Away"), str(error).splitlines()[0])
    place = _("embedded") if not settings.ENV.database_url else _("by DATABASE_URL")
    return Service("PostgreSQL", "ok", _("Answers"), f"{version} · {place}")


def valkey_service() -> Service:
    cache.set("system-page", "here", 10)
    place = _("embedded") if not settings.ENV.valkey_url else _("by VALKEY_URL")
    if cache.get("system-page") == "here":
        return Service("Valkey", "ok", _("Answers"), str(place))
    text = _("Operations and polling wait until it is back; nothing is lost. Sign-in works.")
    return Service("Valkey", "bad", _("Away"), text)


def disk() -> dict[str, Any]:
    """Bytes of the disk that holds kvadmin's state; ``used`` from 0 to 1."""
    usage = shutil.disk_usage(settings.HOME)
    return {
        "path": str(settings.HOME),
        "total": usage.total,
        "free": usage.free,
        "used": usage.used / usage.total if usage.total else 0,
    }


@dataclass(frozen=True)
class Process:
    """One supervised process as a row of the page."""

    name: str
    tone: str
    label: str
    since: datetime | None
    restarts: int
    last_exit: str


def processes() -> list[Process]:
    """The supervisor's processes; empty where something else supervises them."""
    looks = {
        status.RUNNING: ("ok", _("Running")),
        status.STARTING: ("busy", _("Starting")),
        status.WAITING: ("bad", _("Ended, starts again soon")),
        status.STOPPED: ("bad", _("Stopped")),
    }
    return [
        Process(
            row.name, *looks.get(row.state, ("off", row.state)), row.since_at, row.restarts, row.last_exit
        )
        for row in status.read_status(settings.HOME)
    ]


def kept() -> dict[str, str]:
    """What is deleted by itself, and after how long."""

    def days(count: int) -> str:
        return ngettext("%(count)d day", "%(count)d days", count) % {"count": count}

    hours = settings.KVADMIN_KEEP_RAW_H
    return {
        _("Single samples"): ngettext("%(count)d hour", "%(count)d hours", hours) % {"count": hours},
        _("Samples by the minute"): days(settings.KVADMIN_KEEP_MINUTES_D),
        _("Samples by the hour"): days(settings.KVADMIN_KEEP_HOURS_D),
        _("Logs and folders of starts on hosts"): _("the newest %(count)d of each engine")
        % {"count": settings.KVADMIN_KEEP_STARTS},
        _("Operations that have ended"): days(settings.KVADMIN_KEEP_OPERATIONS_D),
        _("Audit events"): days(settings.KVADMIN_KEEP_AUDIT_D),
        _("Usage, each request"): _("%(days)s, or until they take %(size)d GB")
        % {"days": days(settings.KVADMIN_KEEP_USAGE_D), "size": settings.KVADMIN_KEEP_USAGE_GB},
        _("Usage by the minute"): days(max(settings.KVADMIN_KEEP_MINUTES_D, settings.KVADMIN_KEEP_USAGE_D)),
        _("Usage by the hour"): days(max(settings.KVADMIN_KEEP_HOURS_D, settings.KVADMIN_KEEP_USAGE_D + 31)),
        _("Usage by the day"): _("five years"),
        _("Usage that waits in a gateway for the database"): _("up to %(size)d MB for each worker")
        % {"size": settings.ENV.spool_mb},
    }


class SystemView(PermissionView):
    permission = "system.view"

    def get(self, request: HttpRequest) -> HttpResponse:
        context = {
            "processes": processes(),
            "services": [database_service(), valkey_service()],
            "disk": disk(),
            "kept": kept(),
            "versions": {
                "kvadmin": VERSION,
                "Python": platform.python_version(),
                "Django": django.get_version(),
                _("Machine"): f"{platform.system()} {platform.machine()}",
            },
        }
        return render(request, "system/page.html", context)


urlpatterns = [path("system/", SystemView.as_view(), name="system")]
