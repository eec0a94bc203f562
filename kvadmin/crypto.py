"""Secrets at rest: an authenticated encryption field, and keyed digests for tokens.

The data keys live outside the database (``Environment.data_keys``): the first encrypts, every one
decrypts, so a key is rotated by putting a new one in front. A value that no key opens raises
``SecretUnreadable`` at the first use; it is never returned as if it were plain text.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.db import models
from django.db.models.query_utils import DeferredAttribute

from kvadmin.sealing import SecretUnreadable, seal, unseal

__all__ = [
    "EncryptedTextField",
    "HoldsSecrets",
    "Sealed",
    "SecretUnreadable",
    "decrypt",
    "digest",
    "digests_equal",
    "encrypt",
    "has_secret",
    "is_readable",
    "new_secret",
]


def encrypt(plain: str) -> str:
    return seal(plain, settings.KVADMIN_DATA_KEYS)


def decrypt(token: str) -> str:
    return unseal(token, settings.KVADMIN_DATA_KEYS)


def digest(secret: str) -> str:
    """HMAC-SHA256 of a token's secret with the pepper, hex: what is stored instead of the secret."""
    return hmac.new(settings.KVADMIN_PEPPER.encode(), secret.encode(), hashlib.sha256).hexdigest()


def digests_equal(left: str, right: str) -> bool:
    return hmac.compare_digest(left, right)


def new_secret(length: int = 32) -> str:
    return secrets.token_urlsafe(length)


class Sealed(str):
    """A stored secret as it is in the database, not decrypted yet."""

    __slots__ = ()


_reloading: ContextVar[bool] = ContextVar("reloading", default=False)


class _Unsealing(DeferredAttribute):
    """Decrypts at the first look at the attribute, so that a lost key stops only who needs the secret."""

    def __get__(self, instance: models.Model | None, cls: Any = None) -> Any:
        value = super().__get__(instance, cls)
        if isinstance(value, Sealed) and not _reloading.get():
            value = instance.__dict__[self.field.attname] = decrypt(value)
        return value

    def __set__(self, instance: models.Model, value: Any) -> None:
        instance.__dict__[self.field.attname] = value


class HoldsSecrets(models.Model):
    """Base of every model with an EncryptedTextField: reloading a row decrypts nothing."""

    class Meta:
        abstract = True

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        token = _reloading.set(True)
        try:
            super().refresh_from_db(*args, **kwargs)
        finally:
            _reloading.reset(token)


class EncryptedTextField(models.TextField):
    """Text stored encrypted. Empty stays empty. Not searchable, on purpose. In models that HoldsSecrets.

    It is decrypted when the attribute is read: ``SecretUnreadable`` comes then, not when the row is
    loaded. A row that is saved without a look at the secret keeps it as it was. ``values`` and
    ``values_list`` give it ``Sealed``.
    """

    descriptor_class = _Unsealing

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        errors = super().check(**kwargs)
        if not issubclass(self.model, HoldsSecrets):
            errors.append(
                Error(
                    "A model with an EncryptedTextField must inherit kvadmin.crypto.HoldsSecrets: else a "
                    "lost data key breaks refresh_from_db().",
                    obj=self,
                    id="kvadmin.E002",
                )
            )
        return errors

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, Sealed):
            return str(value)
        value = super().get_prep_value(value)
        return encrypt(value) if value else value

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        kept = model_instance.__dict__.get(self.attname)
        return kept if isinstance(kept, Sealed) else super().pre_save(model_instance, add)

    def to_python(self, value: Any) -> Any:
        return value if isinstance(value, Sealed) else super().to_python(value)

    def from_db_value(self, value: str | None, expression: object, connection: object) -> str | None:
        return Sealed(value) if value else value

    def get_lookup(self, lookup_name: str) -> Any:
        return super().get_lookup(lookup_name) if lookup_name in {"isnull"} else None


def has_secret(instance: models.Model, name: str) -> bool:
    """Whether there is a secret, readable or not."""
    kept = instance.__dict__.get(name)
    return bool(kept) if isinstance(kept, Sealed) else bool(getattr(instance, name))


def is_readable(instance: models.Model, *names: str) -> bool:
    """Whether every secret under these attributes can be decrypted (an empty one can)."""
    try:
        for name in names:
            getattr(instance, name)
    except SecretUnreadable:
        return False
    return True
