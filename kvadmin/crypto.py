"""Secrets at rest: an authenticated encryption field, and keyed digests for tokens.

The data keys live outside the database (``Environment.data_keys``): the first encrypts, every one
decrypts, so a key is rotated by putting a new one in front. A value that no key opens raises
``SecretUnreadable``; it is never returned as if it were plain text.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models


class SecretUnreadable(Exception):
    """A stored secret cannot be decrypted with any of the configured data keys."""


@lru_cache(maxsize=4)
def _box(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def encrypt(plain: str) -> str:
    return _box(tuple(settings.KVADMIN_DATA_KEYS)).encrypt(plain.encode()).decode()


def decrypt(token: str) -> str:
    try:
        return _box(tuple(settings.KVADMIN_DATA_KEYS)).decrypt(token.encode()).decode()
    except InvalidToken as error:
        raise SecretUnreadable(
            "A stored secret cannot be read with the present data key. "
            "Put the old key back behind the new one (KVADMIN_DATA_KEYS) or enter the secret again."
        ) from error


def digest(secret: str) -> str:
    """HMAC-SHA256 of a token's secret with the pepper, hex: what is stored instead of the secret."""
    return hmac.new(settings.KVADMIN_PEPPER.encode(), secret.encode(), hashlib.sha256).hexdigest()


def digests_equal(left: str, right: str) -> bool:
    return hmac.compare_digest(left, right)


def new_secret(length: int = 32) -> str:
    return secrets.token_urlsafe(length)


class EncryptedTextField(models.TextField):
    """Text stored encrypted. Empty stays empty. Not searchable, on purpose."""

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        return encrypt(value) if value else value

    def from_db_value(self, value: str | None, expression: object, connection: object) -> str | None:
        return decrypt(value) if value else value

    def get_lookup(self, lookup_name: str) -> Any:
        return super().get_lookup(lookup_name) if lookup_name in {"isnull"} else None
