"""Signing in to a host that has shown its confirmed key: what is offered, and what a refusal means."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import paramiko

from engines.ssh import keys
from engines.ssh.errors import HostKeyUnusable, SignInRefused
from kvadmin.sentences import gettext as _

if TYPE_CHECKING:
    from engines.ssh.transport import Login

_PASSWORD_METHODS = {"password", "keyboard-interactive"}


def offer(transport: paramiko.Transport, login: Login, tried: list[str]) -> list[str]:
    """Offer what there is, in the order the server wants it; what it still asks for after that."""
    if login.private_key and login.password:
        try:
            left = _by_key(transport, login, tried)
        except paramiko.BadAuthenticationType as error:
            if not _PASSWORD_METHODS & set(error.allowed_types):
                raise
            left = _by_password(transport, login, tried)
            return _by_key(transport, login, tried) if "publickey" in left else left
        return _by_password(transport, login, tried) if _PASSWORD_METHODS & set(left) else left
    if login.private_key:
        return _by_key(transport, login, tried)
    if login.password:
        return _by_password(transport, login, tried)
    return transport.auth_none(login.username)


def _by_key(transport: paramiko.Transport, login: Login, tried: list[str]) -> list[str]:
    tried.append("key")
    return transport.auth_publickey(login.username, _private_key(login))


def _by_password(transport: paramiko.Transport, login: Login, tried: list[str]) -> list[str]:
    tried.append("password")
    try:
        return transport.auth_password(login.username, login.password, fallback=False)
    except paramiko.BadAuthenticationType as error:
        if "keyboard-interactive" not in error.allowed_types:
            raise
    return transport.auth_interactive(
        login.username, lambda _title, _text, prompts: [login.password for _prompt in prompts]
    )


def _private_key(login: Login) -> paramiko.PKey:
    try:
        key = keys.read_private_key(login.private_key, login.passphrase)
    except keys.KeyProblem as error:
        raise HostKeyUnusable(
            _("The private key of %(host)s cannot be used. %(problem)s")
            % {"host": login.name, "problem": error.message},
            remedy=error.remedy,
        ) from error
    text = keys.private_text(key)
    kinds = {"ssh-ed25519": paramiko.Ed25519Key, "ssh-rsa": paramiko.RSAKey}
    name = keys.public_line(text).split(" ", 1)[0]
    return kinds.get(name, paramiko.ECDSAKey).from_private_key(io.StringIO(text))


def refused(login: Login, tried: list[str], accepted: list[str] | None = None) -> SignInRefused:
    names = {"host": login.name, "user": login.username, "methods": ", ".join(accepted or [])}
    if tried[-1:] == ["key"]:
        message = _("%(host)s refused the key of user %(user)s.") % names
        remedy = _("Put the public key into ~/.ssh/authorized_keys of that user on the host.")
    elif tried:
        message = _("%(host)s refused the password of user %(user)s.") % names
        remedy = _("Check user name and password.")
    else:
        message = _("%(host)s asks user %(user)s to sign in.") % names
        remedy = _("Enter a private key or a password for this host.")
    if accepted:
        message += " " + _("It accepts: %(methods)s.") % names
    return SignInRefused(message, remedy=remedy)


def wants_more(login: Login, methods: list[str]) -> SignInRefused:
    """What was given is right, and the server asks for something besides."""
    names = {"host": login.name, "user": login.username, "methods": ", ".join(methods)}
    if login.private_key and login.password:
        message = _("%(host)s accepts key and password of user %(user)s and asks for more: %(methods)s.")
        remedy = _("kvadmin cannot enter one-time codes: exempt this user from them on the host.")
    elif login.private_key:
        message = _("%(host)s accepts the key of user %(user)s and asks for more: %(methods)s.")
        remedy = _(
            "If it is the password it asks for, choose “Private key and password” for this host. kvadmin "
            "cannot enter one-time codes: exempt this user from them on the host."
        )
    else:
        message = _("%(host)s accepts the password of user %(user)s and asks for more: %(methods)s.")
        remedy = _("If it asks for a key too, choose “Private key and password” for this host.")
    return SignInRefused(message % names, remedy=remedy)
