"""Audit rows of signing in and out and of the ways to sign in. They hold no password and no code."""

from __future__ import annotations

from typing import Any

from allauth.account import signals as account_signals
from allauth.mfa import signals as mfa_signals
from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver
from django.http import HttpRequest

from kvadmin.accounts import locks
from kvadmin.actions import Actor
from kvadmin.clientip import client_ip
from kvadmin.models import AuditEvent, User

#: who an audit row names when nobody was signed in
ANONYMOUS = "anonymous"


def record(
    request: HttpRequest | None,
    verb: str,
    user: User | None,
    *,
    by: User | None,
    after: dict[str, Any] | None = None,
) -> None:
    """One row about ``user``. Without ``by`` nobody was signed in yet."""
    ip = client_ip(request) if request is not None else None
    event = AuditEvent.objects.record(
        actor=Actor(user=by, source="web", ip=ip), verb=verb, subject=user, after=after
    )
    if by is None:
        AuditEvent.objects.filter(pk=event.pk).update(actor_name=ANONYMOUS)


def sign_in_failed(request: HttpRequest | None, user: User | None, *, method: str) -> None:
    """Count and record a refused sign-in. A name that nobody has is left out: it may be a password."""
    after: dict[str, Any] = {"method": method}
    if user is None:
        after["account"] = "unknown"
    elif locks.count_failure(user):
        after["locked_minutes"] = int(locks.LOCKED_FOR.total_seconds() // 60)
    record(request, "account.sign_in_failed", user, by=None, after=after)


@receiver(account_signals.user_logged_in)
def _signed_in(request: HttpRequest, user: User, **kwargs: Any) -> None:
    locks.clear(user)
    records = request.session.get("account_authentication_methods", [])
    methods = [str(item.get("method", "")) for item in records if isinstance(item, dict)]
    record(request, "account.sign_in", user, by=user, after={"methods": methods})


@receiver(user_logged_out)
def _signed_out(request: HttpRequest, user: User | None, **kwargs: Any) -> None:
    if user is not None:
        record(request, "account.sign_out", user, by=user)


@receiver(account_signals.password_changed)
def _password_changed(request: HttpRequest, user: User, **kwargs: Any) -> None:
    if user.must_change_password:
        user.must_change_password = False
        user.save(update_fields=["must_change_password"])
    record(request, "account.change_password", user, by=user)


@receiver(mfa_signals.authenticator_added)
def _factor_added(request: HttpRequest, user: User, authenticator: Any, **kwargs: Any) -> None:
    record(request, "account.add_factor", user, by=user, after={"kind": str(authenticator.type)})


@receiver(mfa_signals.authenticator_removed)
def _factor_removed(request: HttpRequest, user: User, authenticator: Any, **kwargs: Any) -> None:
    record(request, "account.remove_factor", user, by=user, after={"kind": str(authenticator.type)})


@receiver(mfa_signals.authenticator_reset)
def _factor_reset(request: HttpRequest, user: User, authenticator: Any, **kwargs: Any) -> None:
    record(request, "account.renew_factor", user, by=user, after={"kind": str(authenticator.type)})


@receiver(mfa_signals.authentication_failed)
def _factor_refused(request: HttpRequest, user: User, authenticator: Any, **kwargs: Any) -> None:
    sign_in_failed(request, user, method=str(authenticator.type))
