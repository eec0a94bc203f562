"""How allauth behaves here: no self sign-up, locks, secrets encrypted, people from the company's OIDC."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.core.internal import ratelimit
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialLogin
from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kvadmin import crypto
from kvadmin.accounts import audit, locks
from kvadmin.clientip import client_ip
from kvadmin.models import User


class AccountAdapter(DefaultAccountAdapter):
    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "too_many_login_attempts": gettext_lazy(
            "Too many wrong passwords. Wait 15 minutes and try again, or ask an administrator to lift the "
            "lock."
        ),
        "username_password_mismatch": gettext_lazy(
            "This user name and password do not belong together. Check both; an administrator can set a new "
            "password."
        ),
        "email_password_mismatch": gettext_lazy(
            "This email address and password do not belong together. Check both; an administrator can set a "
            "new password."
        ),
        "enter_current_password": gettext_lazy("This is not your present password."),
        "incorrect_password": gettext_lazy("This is not your password."),
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        # a console behind a UNIX socket has no address for its peer; all such callers share one limit
        return client_ip(request) or "0.0.0.0"  # noqa: S104

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        return "/" if request.user.may("fleet.view") else "/account/"

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return "/account/"

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        return limit_key(credentials.get("email", credentials.get("username", "")))

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        super().pre_authenticate(request, **credentials)
        user = locks.account_named(credentials)
        if user is not None and user.is_locked:
            raise self.validation_error("too_many_login_attempts")

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        audit.sign_in_failed(request, locks.account_named(credentials), method="password")


def limit_key(login: str) -> str:
    return f"sign-in:{login.lower()}"


def clear_sign_in_limits(user: User) -> None:
    """Forget the shared cache's count of failed sign-ins under the account's name and email."""
    from django.core.cache import cache

    for login in filter(None, (user.username, user.email)):
        for rate in ratelimit.get_rates(app="allauth.account", action="login_failed"):
            if rate.per == "key":
                key = ratelimit.get_cache_key(
                    HttpRequest(),
                    app="allauth.account",
                    action="login_failed",
                    rate=rate,
                    key=limit_key(login),
                )
                cache.delete(key)


class MfaAdapter(DefaultMFAAdapter):
    error_messages = {
        **DefaultMFAAdapter.error_messages,
        "incorrect_code": gettext_lazy(
            "This is not right. Check the clock of your phone, or use a recovery code."
        ),
    }

    def encrypt(self, text: str) -> str:
        return crypto.encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        return crypto.decrypt(encrypted_text)

    def get_totp_label(self, user: User) -> str:
        return user.get_username()

    def _get_site_name(self) -> str:
        return "kvadmin"

    def generate_authenticator_name(self, user: User, type: Any) -> str:
        return _("Passkey")


class SocialAdapter(DefaultSocialAccountAdapter):
    """People from the OIDC provider: known ones sign in, new ones only where the settings allow it."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return bool(settings.KVADMIN_OIDC_CREATE_USERS)

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True

    def populate_user(self, request: HttpRequest, sociallogin: SocialLogin, data: dict[str, Any]) -> User:
        user = super().populate_user(request, sociallogin, data)
        user.role = settings.KVADMIN_OIDC_ROLE
        return user

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Join the OIDC account to the user an administrator made with that address, if the provider
        vouches for the address. Only sign-in is supported: an account is never joined to whoever
        happens to be signed in.
        """
        if sociallogin.state.get("process") == "connect":
            raise ImmediateHttpResponse(refuse(request, _("Signing in is the only thing done here.")))
        if sociallogin.is_existing:
            return
        for address in sociallogin.email_addresses:
            known = list(User.objects.filter(email__iexact=address.email)[:2])
            if not known:
                continue
            if len(known) > 1:
                sentence = _("More than one account here has your email address.")
                raise ImmediateHttpResponse(refuse(request, sentence))
            if not address.verified:
                sentence = _(
                    "An account here has your email address, but the provider does not confirm that the "
                    "address is yours."
                )
                raise ImmediateHttpResponse(refuse(request, sentence))
            sociallogin.connect(request, known[0])
            audit.record(
                request,
                "account.join_oidc",
                known[0],
                by=None,
                after={"provider": sociallogin.account.provider},
            )
            return

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        user = super().save_user(request, sociallogin, form)
        audit.record(
            request,
            "user.create",
            user,
            by=None,
            after={"username": user.username, "role": user.role, "by": "oidc"},
        )
        return user


def refuse(request: HttpRequest, sentence: str) -> Any:
    return render(request, "socialaccount/authentication_error.html", {"sentence": sentence}, status=403)
