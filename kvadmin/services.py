"""Where PostgreSQL and Valkey are: by URL, or the embedded ones' sockets under KVADMIN_HOME."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from kvadmin.env import Environment, generated
from kvadmin.up.places import postgres_place, valkey_socket


def database_settings(env: Environment) -> dict[str, Any]:
    """Django's DATABASES entry."""
    common = {
        "ENGINE": "django.db.backends.postgresql",
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }
    if not env.database_url:
        return {
            **common,
            "NAME": "kvadmin",
            "USER": "postgres",
            "HOST": str(postgres_place(env.home).sockets),
        }
    parts = urlsplit(env.database_url)
    query = dict(parse_qsl(parts.query))
    return {
        **common,
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.pop("host", "") or unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "OPTIONS": query,
    }


def valkey_password(env: Environment) -> str:
    import secrets

    return generated(env.home, "valkey_password", lambda: secrets.token_urlsafe(32))


def valkey_url(env: Environment) -> str:
    """A URL that Celery's Redis transport takes; the embedded server listens on a socket only."""
    if env.valkey_url:
        return env.valkey_url
    return socket_url(str(valkey_socket(env.home)), valkey_password(env))


def socket_url(path: str, password: str) -> str:
    return f"redis+socket://:{quote(password, safe='')}@{quote(path, safe='/')}?virtual_host=0"
