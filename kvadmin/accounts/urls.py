"""allauth's views that this console has. Sign-up, email and reset by mail have no address."""

from __future__ import annotations

from allauth.account import views as account
from allauth.mfa.base import views as mfa
from allauth.mfa.recovery_codes import views as recovery
from allauth.mfa.totp import views as totp
from allauth.mfa.webauthn import views as webauthn
from allauth.socialaccount import views as social
from allauth.socialaccount.providers.openid_connect import views as oidc
from django.urls import path

from kvadmin.accounts import views

urlpatterns = [
    path("login/", account.login, name="account_login"),
    path("logout/", account.logout, name="account_logout"),
    path("inactive/", account.account_inactive, name="account_inactive"),
    path("reauthenticate/", account.reauthenticate, name="account_reauthenticate"),
    path("password/", account.password_change, name="account_change_password"),
    path("password/none/", views.no_password, name="account_set_password"),
    path("factors/", mfa.index, name="mfa_index"),
    path("factors/authenticate/", mfa.authenticate, name="mfa_authenticate"),
    path("factors/reauthenticate/", mfa.reauthenticate, name="mfa_reauthenticate"),
    path("factors/app/add/", totp.activate_totp, name="mfa_activate_totp"),
    path("factors/app/remove/", totp.deactivate_totp, name="mfa_deactivate_totp"),
    path("factors/codes/", recovery.view_recovery_codes, name="mfa_view_recovery_codes"),
    path("factors/codes/new/", recovery.generate_recovery_codes, name="mfa_generate_recovery_codes"),
    path("factors/codes/download/", recovery.download_recovery_codes, name="mfa_download_recovery_codes"),
    path("passkeys/", webauthn.list_webauthn, name="mfa_list_webauthn"),
    path("passkeys/add/", webauthn.add_webauthn, name="mfa_add_webauthn"),
    path("passkeys/login/", webauthn.login_webauthn, name="mfa_login_webauthn"),
    path("passkeys/reauthenticate/", webauthn.reauthenticate_webauthn, name="mfa_reauthenticate_webauthn"),
    path("passkeys/<int:pk>/rename/", webauthn.edit_webauthn, name="mfa_edit_webauthn"),
    path("passkeys/<int:pk>/remove/", webauthn.remove_webauthn, name="mfa_remove_webauthn"),
    path("oidc/cancelled/", social.login_cancelled, name="socialaccount_login_cancelled"),
    path("oidc/error/", social.login_error, name="socialaccount_login_error"),
    path("oidc/<slug:provider_id>/login/", views.begin_oidc, name="openid_connect_login"),
    path("oidc/<slug:provider_id>/login/callback/", oidc.callback, name="openid_connect_callback"),
]
