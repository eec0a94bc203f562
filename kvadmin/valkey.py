"""The client of Valkey for what is not Celery's: heartbeats, locks, small caches. All of it can be lost."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from django.conf import settings


@lru_cache(maxsize=2)
def _client(url: str, timeout: float) -> redis.Redis:
    common = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "decode_responses": True}
    parts = urlsplit(url)
    if parts.scheme != "redis+socket":
        return redis.Redis.from_url(url, **common)
    pool = redis.ConnectionPool(
        connection_class=redis.UnixDomainSocketConnection,
        path=unquote(parts.path),
        username=unquote(parts.username or "") or None,
        password=unquote(parts.password or "") or None,
        db=int(parse_qs(parts.query).get("virtual_host", ["0"])[0]),
        socket_timeout=timeout,
        decode_responses=True,
    )
    return redis.Redis(connection_pool=pool)


def client(timeout: float = 2) -> redis.Redis:
    """Shared by all threads of the process. Raises redis.RedisError when Valkey does not answer."""
    return _client(settings.CELERY_BROKER_URL, timeout)
