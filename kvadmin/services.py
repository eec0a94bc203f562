"""Where PostgreSQL and Valkey are: by URL, or the embedded ones' sockets under KVADMIN_HOME."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from kvadmin import serviceurls
from kvadmin.env import Environment, generated
from kvadmin.up.places import postgres_place, valkey_socket


def database_settings(env: Environment, *, pool: int = 0) -> dict[str, Any]:
    """Django's DATABASES entry. With ``pool`` > 0 that many connections are shared by all threads:
    the console answers each request on a thread of its own, where a kept connection would be lost."""
    place = (
        serviceurls.database_settings(env.database_url)
        if env.database_url
        else {"NAME": "kvadmin", "USER": "postgres", "HOST": str(postgres_place(env.home).sockets)}
    )
    options = {**place.get("OPTIONS", {})}
    if pool:
        options["pool"] = {"min_size": 1, "max_size": pool, "timeout": 10}
    return {
        **place,
        "ENGINE": "django.db.backends.postgresql",
        "OPTIONS": options,
        "CONN_MAX_AGE": 0 if pool else 60,
        "CONN_HEALTH_CHECKS": True,
    }


def valkey_password(env: Environment) -> str:
    return generated(env.home, "valkey_password", lambda: secrets.token_urlsafe(32))


def valkey_url(env: Environment) -> str:
    """A URL that Celery's Redis transport takes; the embedded server listens on a socket only."""
    if env.valkey_url:
        return env.valkey_url
    return socket_url(str(valkey_socket(env.home)), valkey_password(env))


def socket_url(path: str, password: str) -> str:
    return f"redis+socket://:{quote(password, safe='')}@{quote(path, safe='/')}?virtual_host=0"


def valkey_cache_url(env: Environment) -> str:
    """The same server in the words of the redis client, which Django's cache uses."""
    parts = urlsplit(valkey_url(env))
    if parts.scheme != "redis+socket":
        return valkey_url(env)
    database = dict(parse_qsl(parts.query)).get("virtual_host", "0")
    return f"unix://{parts.netloc}{parts.path}?db={database}"
