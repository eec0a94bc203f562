"""Secrets at rest without Django: Fernet under the data keys. The first key encrypts, every one decrypts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet


class SecretUnreadable(Exception):
    """A stored secret cannot be decrypted with any of the configured data keys."""


@lru_cache(maxsize=4)
def _box(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def seal(plain: str, keys: Iterable[str]) -> str:
    return _box(tuple(keys)).encrypt(plain.encode()).decode()


def unseal(token: str, keys: Iterable[str]) -> str:
    """Raises SecretUnreadable when no key opens it."""
    try:
        return _box(tuple(keys)).decrypt(token.encode()).decode()
    except InvalidToken as error:
        raise SecretUnreadable(
            "A stored secret cannot be read with the present data key. "
            "Put the old key back behind the new one (KVADMIN_DATA_KEYS) or enter the secret again."
        ) from error


def data_keys(text: str) -> list[str]:
    """The keys in KVADMIN_DATA_KEYS, the newest first."""
    return [key.strip() for key in text.split(",") if key.strip()]
