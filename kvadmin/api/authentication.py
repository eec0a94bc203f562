"""Who calls the management API: a token for scripts, the session for the browser."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.request import Request

from kvadmin.api.problems import Problem
from kvadmin.crypto import digest, digests_equal
from kvadmin.models import ManagementToken

_SHAPE = re.compile(r"kvm_(?P<public_id>[0-9a-f]{16})_(?P<secret>[A-Za-z0-9_-]{20,100})")
#: last_used_at is written at most this often
USED_EVERY = timedelta(minutes=1)


class TokenRefused(exceptions.AuthenticationFailed, Problem):
    """401 with its own code and sentence; never repeats what was sent."""

    def __init__(self, detail: str, *, code: str, remedy: str):
        Problem.__init__(self, detail, status=401, code=code, remedy=remedy)


class TokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer kvm_<public id>_<secret>``. Sets ``request.auth`` to the ManagementToken."""

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="kvadmin"'

    def authenticate(self, request: Request) -> tuple[Any, ManagementToken] | None:
        header = request.headers.get("Authorization")
        if header is None:
            return None
        token = find_token(header)
        note_use(token)
        return token.user, token


def find_token(header: str) -> ManagementToken:
    """The usable token that an Authorization header names; raises TokenRefused with the reason."""
    scheme, _blank, value = header.strip().partition(" ")
    if scheme.lower() != "bearer" or not value.strip():
        raise TokenRefused(
            _("The header “Authorization” does not have the form “Bearer kvm_…”."),
            code="token_scheme",
            remedy=_("Send “Authorization: Bearer”, a blank, and the management token."),
        )
    value = value.strip()
    if value.startswith("sk-kv-"):
        raise TokenRefused(
            _("This is a key of the gateway, not a management token."),
            code="token_is_gateway_key",
            remedy=_("Make a management token on your account page; it begins with kvm_."),
        )
    shape = _SHAPE.fullmatch(value)
    if shape is None:
        raise TokenRefused(
            _("What was sent does not look like a management token."),
            code="token_malformed",
            remedy=_("Copy the whole token, from kvm_ to its end, without quotes or blanks."),
        )
    token = ManagementToken.objects.select_related("user").filter(public_id=shape["public_id"]).first()
    # An unknown id costs the same comparison as a wrong secret.
    right = digests_equal(digest(shape["secret"]), token.digest if token else digest(""))
    if token is None or not right:
        raise TokenRefused(
            _("This management token is not known here."),
            code="token_unknown",
            remedy=_("Check that it was copied whole and belongs to this kvadmin, or make a new one."),
        )
    _refuse_unusable(token)
    return token


def _refuse_unusable(token: ManagementToken) -> None:
    if token.revoked_at is not None:
        raise TokenRefused(
            _("This management token was revoked."),
            code="token_revoked",
            remedy=_("Make a new one on your account page."),
        )
    if token.expires_at is not None and token.expires_at <= timezone.now():
        raise TokenRefused(
            _("This management token expired on %(date)s.") % {"date": token.expires_at.date().isoformat()},
            code="token_expired",
            remedy=_("Make a new one on your account page."),
        )
    if not token.user.is_active:
        raise TokenRefused(
            _("The account that this token belongs to is disabled."),
            code="user_disabled",
            remedy=_("Ask an administrator to enable it."),
        )
    if token.user.must_change_password and token.user.has_usable_password():
        raise TokenRefused(
            _("A new password is due."),
            code="new_password_due",
            remedy=_("Set a new password in the console first."),
        )


def note_use(token: ManagementToken) -> None:
    """Write ``last_used_at``, at most once a minute however many calls there are."""
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at > USED_EVERY:
        ManagementToken.objects.filter(pk=token.pk).filter(
            Q(last_used_at=None) | Q(last_used_at__lt=now - USED_EVERY)
        ).update(last_used_at=now)


class BrowserSession(SessionAuthentication):
    """The console's session, with its CSRF check."""

    def enforce_csrf(self, request: Request) -> None:
        try:
            super().enforce_csrf(request)
        except exceptions.PermissionDenied as error:
            raise Problem(
                _("This request does not carry the page's CSRF token."),
                status=403,
                code="csrf_failed",
                remedy=_("Load the page again. Scripts use a management token instead of the session."),
            ) from error
