"""The lock on an account after wrong passwords. It lives in PostgreSQL: it outlasts restarts and Valkey."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from kvadmin.models import User

#: wrong passwords or codes in a row before the lock, and how long it holds
FAILURES = 10
LOCKED_FOR = timedelta(minutes=15)


def account_named(credentials: dict[str, Any]) -> User | None:
    """The account that a sign-in names, by user name or email; None if there is none."""
    for lookup in ("username", "email"):
        value = credentials.get(lookup)
        if value:
            user = User.objects.filter(**{f"{lookup}__iexact": value}).first()
            if user is not None:
                return user
    return None


def count_failure(user: User) -> bool:
    """One more wrong password or code; True if this one locked the account."""
    with transaction.atomic():
        User.objects.filter(pk=user.pk).update(failed_sign_ins=F("failed_sign_ins") + 1)
        return bool(
            User.objects.filter(pk=user.pk, failed_sign_ins__gte=FAILURES).update(
                failed_sign_ins=0, locked_until=timezone.now() + LOCKED_FOR
            )
        )


def clear(user: User) -> None:
    """Forget failures and lift the lock."""
    User.objects.filter(pk=user.pk).update(failed_sign_ins=0, locked_until=None)
