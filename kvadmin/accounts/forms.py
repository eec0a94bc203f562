"""allauth's forms with this console's words."""

from __future__ import annotations

from typing import Any

from allauth.account import forms as account_forms
from allauth.mfa.base import forms as mfa_forms
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.webauthn import forms as webauthn_forms
from django import forms
from django.utils.translation import gettext_lazy as _


class PlainFields:
    """Labels instead of placeholders, and no help text of allauth's own."""

    labels: dict[str, Any] = {}
    helps: dict[str, Any] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():  # type: ignore[attr-defined]
            field.widget.attrs.pop("placeholder", None)
            field.label = self.labels.get(name, field.label)
            field.help_text = self.helps.get(name, field.help_text)


class LoginForm(PlainFields, account_forms.LoginForm):
    labels = {
        "login": _("User name or email"),
        "password": _("Password"),
        "remember": _("Keep me signed in for a week"),
    }
    helps = {"password": ""}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["login"].widget.attrs.update(
            {"autocomplete": "username", "autocapitalize": "none", "spellcheck": "false", "autofocus": True}
        )


class ChangePasswordForm(PlainFields, account_forms.ChangePasswordForm):
    labels = {
        "oldpassword": _("Present password"),
        "password1": _("New password"),
        "password2": _("New password again"),
    }
    helps = {"oldpassword": ""}

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        if data.get("password1") and data.get("password1") == data.get("oldpassword"):
            self.add_error("password1", _("This is the present password. Choose another one."))
        return data


class ReauthenticateForm(PlainFields, account_forms.ReauthenticateForm):
    labels = {"password": _("Password")}
    helps = {"password": ""}


_CODE = {"code": _("Code from your app, or a recovery code")}


class AuthenticateForm(PlainFields, mfa_forms.AuthenticateForm):
    labels = _CODE

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].widget.attrs.update({"inputmode": "text", "autofocus": True})


class CodeReauthenticateForm(PlainFields, mfa_forms.ReauthenticateForm):
    labels = _CODE


class TotpForm(PlainFields, ActivateTOTPForm):
    labels = {"code": _("Code that the app shows")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].widget.attrs.update({"inputmode": "numeric", "autocomplete": "one-time-code"})


class AddPasskeyForm(PlainFields, webauthn_forms.AddWebAuthnForm):
    labels = {"name": _("Name"), "passwordless": _("Sign in with it alone, without a password")}
    helps = {
        "name": _("To tell it from others, for example: laptop, phone, yellow key."),
        "passwordless": _("The device then asks for your finger, face or PIN."),
    }

    name = forms.CharField(required=False, max_length=100)


class RenamePasskeyForm(PlainFields, webauthn_forms.EditWebAuthnForm):
    labels = {"name": _("Name")}
