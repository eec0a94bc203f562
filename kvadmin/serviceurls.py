"""DATABASE_URL and VALKEY_URL: read and checked. Pure; a mistake is a ValueError whose text says what
to write, without the value itself (it holds a password)."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

#: what libpq takes from a URL's query, besides host and port
DATABASE_OPTIONS = {
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "gssencmode",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "load_balance_hosts",
    "options",
    "passfile",
    "require_auth",
    "service",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
}
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
VALKEY_SCHEMES = {
    "redis": "redis",
    "valkey": "redis",
    "rediss": "rediss",
    "valkeys": "rediss",
    "unix": "redis+socket",
    "redis+socket": "redis+socket",
}


def _split(url: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("the address or the port in it cannot be read") from None
    return parts, port


def database_settings(url: str) -> dict[str, Any]:
    """NAME, USER, PASSWORD, HOST, PORT and OPTIONS of Django's DATABASES, from a libpq-like URL."""
    parts, port = _split(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ValueError(f"it begins with {parts.scheme or 'no scheme'}:// and only PostgreSQL is supported")
    name = unquote(parts.path.lstrip("/"))
    if not name or "/" in name:
        raise ValueError("it does not end in one database name")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    host = query.pop("host", "") or unquote(parts.hostname or "")
    ports = query.pop("port", "") or str(port or "")
    for option in query:
        if option not in DATABASE_OPTIONS:
            near = get_close_matches(option, [*DATABASE_OPTIONS, "host", "port"], 1)
            raise ValueError(
                f"it has an unknown option {option}" + (f" (is {near[0]} meant?)" if near else "")
            )
    if query.get("sslmode", "prefer") not in SSL_MODES:
        raise ValueError(f"its sslmode is none of {', '.join(SSL_MODES)}")
    return {
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": ports,
        "OPTIONS": query,
    }


def broker_url(url: str) -> str:
    """The URL as Celery's Redis transport takes it: valkey:// and unix:// are ours."""
    parts, port = _split(url)
    if parts.scheme not in VALKEY_SCHEMES:
        raise ValueError(
            f"it begins with {parts.scheme or 'no scheme'}:// and not with redis://, rediss://, valkey:// "
            "or unix://"
        )
    scheme = VALKEY_SCHEMES[parts.scheme]
    query = dict(parse_qsl(parts.query))
    if scheme == "redis+socket":
        path = unquote(parts.path)
        if not path.startswith("/") or path == "/":
            raise ValueError("it names no socket, such as unix:///run/valkey/valkey.sock")
        database = query.get("db") or query.get("virtual_host") or "0"
        if not database.isdigit():
            raise ValueError("its database is not a number")
        user = _userinfo(parts)
        return f"{scheme}://{user}{quote(path, safe='/')}?virtual_host={database}"
    if not parts.hostname:
        raise ValueError("it names no host")
    database = parts.path.strip("/") or query.pop("db", "") or "0"
    if not database.isdigit():
        raise ValueError("its database is not a number")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if scheme == "rediss":
        # kombu's own default takes any certificate
        query.setdefault("ssl_cert_reqs", "required")
    rest = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return f"{scheme}://{_userinfo(parts)}{host}:{port or 6379}/{database}" + (f"?{rest}" if rest else "")


def _userinfo(parts: SplitResult) -> str:
    if parts.password is None and not parts.username:
        return ""
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return f"{quote(user, safe='')}:{quote(password, safe='')}@"
