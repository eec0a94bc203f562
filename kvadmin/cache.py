"""The shared cache in Valkey: rate limits and small things that may be lost at any time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.core.cache.backends.redis import RedisCache
from redis.exceptions import RedisError

log = logging.getLogger(__name__)


class LossyCache(RedisCache):
    """Django's Redis cache that a dead Valkey turns into an empty one, with a line in the log.

    Sign-in must work while Valkey is away: rate limits then let everything pass (``add`` succeeds,
    ``get`` finds nothing) and the lock on accounts, kept in PostgreSQL, still holds.
    """

    def _or(self, call: Callable[[], Any], lost: Any) -> Any:
        try:
            return call()
        except (RedisError, OSError) as error:
            log.warning("the cache does not answer, going on without it: %s", type(error).__name__)
            return lost

    def add(self, *args: Any, **kwargs: Any) -> bool:
        return self._or(lambda: RedisCache.add(self, *args, **kwargs), True)

    def get(self, key: Any, default: Any = None, version: Any = None) -> Any:
        return self._or(lambda: RedisCache.get(self, key, default, version), default)

    def set(self, *args: Any, **kwargs: Any) -> None:
        self._or(lambda: RedisCache.set(self, *args, **kwargs), None)

    def touch(self, *args: Any, **kwargs: Any) -> bool:
        return self._or(lambda: RedisCache.touch(self, *args, **kwargs), False)

    def delete(self, *args: Any, **kwargs: Any) -> bool:
        return self._or(lambda: RedisCache.delete(self, *args, **kwargs), False)

    def get_many(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return self._or(lambda: RedisCache.get_many(self, *args, **kwargs), {})

    def has_key(self, *args: Any, **kwargs: Any) -> bool:
        return self._or(lambda: RedisCache.has_key(self, *args, **kwargs), False)

    def incr(self, key: Any, delta: int = 1, version: Any = None) -> int:
        return self._or(lambda: RedisCache.incr(self, key, delta, version), delta)

    def set_many(self, *args: Any, **kwargs: Any) -> list[Any]:
        return self._or(lambda: RedisCache.set_many(self, *args, **kwargs), [])

    def delete_many(self, *args: Any, **kwargs: Any) -> None:
        self._or(lambda: RedisCache.delete_many(self, *args, **kwargs), None)

    def clear(self) -> bool:
        return self._or(lambda: RedisCache.clear(self), False)
