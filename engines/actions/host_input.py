"""What adding and changing a host have in common: checking the input, in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol
from urllib.parse import urlsplit

from django.utils.translation import gettext as _

from engines.choices import HostAuth, HostKind
from engines.models import Host
from engines.ssh import keys
from kvadmin.actions.mistakes import Mistakes
from kvadmin.crypto import has_secret, is_readable

_ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[?[0-9A-Fa-f:]+(%[A-Za-z0-9]+)?\]?")
_USERNAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@\\+-]{0,63}")
_LONGEST_PATH = 255

#: what of a host is shown in an audit row; none of it is secret
AUDITED = (
    "name", "kind", "address", "port", "username", "auth", "service_address", "work_dir", "model_dirs",
    "index_url", "wheel_dir", "proxy",
)  # fmt: skip


def picture(host: Host) -> dict[str, Any]:
    """The host's settings for an audit row."""
    shown = {name: getattr(host, name) for name in AUDITED}
    shown["jump"] = host.jump.name if host.jump is not None else ""
    shown["public_key"] = host.public_key
    return shown


def check_settings(host: Host, mistakes: Mistakes) -> None:
    """Check an unsaved host's settings, tidying blanks; secrets are not looked at."""
    host.name = host.name.strip()
    if not host.name:
        mistakes.add("name", _("Give the host a name."))
    elif len(host.name) > 100:
        mistakes.add("name", _("A name has at most 100 characters."))
    elif Host.objects.filter(name=host.name).exclude(pk=host.pk).exists():
        mistakes.add("name", _("There is a host of this name already."))
    if host.kind == HostKind.LOCAL:
        if Host.objects.filter(kind=HostKind.LOCAL).exclude(pk=host.pk).exists():
            mistakes.add("kind", _("This machine is among the hosts already."))
        host.auth, host.jump = HostAuth.NONE, None
    elif host.kind == HostKind.SSH:
        _check_connection(host, mistakes)
    else:
        mistakes.add("kind", _("Choose how the host is reached: over SSH, or this machine."))
    host.service_address = host.service_address.strip()
    if host.service_address and not _ADDRESS.fullmatch(host.service_address):
        mistakes.add("service_address", _("Give a host name or an IP address, without port and scheme."))
    _check_places(host, mistakes)


def _check_connection(host: Host, mistakes: Mistakes) -> None:
    host.address = host.address.strip()
    if not host.address:
        mistakes.add("address", _("Give the host's name or IP address."))
    elif "@" in host.address:
        mistakes.add("address", _("Give the user in its own field: here only the host's name or address."))
    elif not _ADDRESS.fullmatch(host.address) or len(host.address) > 255:
        mistakes.add("address", _("Give a host name or an IP address, without port and scheme."))
    else:
        host.address = host.address.strip("[]")
    if not 1 <= host.port <= 65535:
        mistakes.add("port", _("A port is a number from 1 to 65535."))
    host.username = host.username.strip()
    if not host.username:
        mistakes.add("username", _("Give the user to sign in as on the host."))
    elif not _USERNAME.fullmatch(host.username):
        mistakes.add("username", _("This is not a user name: letters, digits and . _ - only."))
    if host.auth not in {HostAuth.KEY, HostAuth.PASSWORD, HostAuth.BOTH}:
        mistakes.add("auth", _("Choose a private key, a password, or both."))
    if host.jump is not None:
        _check_jump(host, host.jump, mistakes)


def _check_jump(host: Host, jump: Host, mistakes: Mistakes) -> None:
    if jump.kind != HostKind.SSH:
        mistakes.add("jump", _("This machine cannot be a jump host: leave it empty to connect directly."))
        return
    seen = {host.pk} if host.pk else set()
    hop: Host | None = jump
    while hop is not None:
        if hop.pk in seen:
            mistakes.add("jump", _("These jump hosts lead back to this host."))
            return
        seen.add(hop.pk)
        hop = hop.jump
    if not host.service_address.strip():
        mistakes.add(
            "service_address",
            _("Behind a jump host, say at which address gateway and console reach its engines."),
        )


def _check_places(host: Host, mistakes: Mistakes) -> None:
    host.work_dir = host.work_dir.strip() or "~/.kvadmin"
    host.work_dir = host.work_dir.rstrip("/") or "/"
    if problem := path_problem(host.work_dir):
        mistakes.add("work_dir", problem)
    host.model_dirs = tidy_lines(host.model_dirs)
    for folder in host.model_dirs:
        if problem := path_problem(folder):
            mistakes.add("model_dirs", f"{folder}: {problem}")
    host.wheel_dir = host.wheel_dir.strip()
    if host.wheel_dir and (problem := path_problem(host.wheel_dir)):
        mistakes.add("wheel_dir", problem)
    host.index_url = host.index_url.strip()
    if host.index_url and (problem := _url_problem(host.index_url, {"http", "https", "file"})):
        mistakes.add("index_url", problem)
    host.proxy = host.proxy.strip()
    if host.proxy and (problem := _url_problem(host.proxy, {"http", "https", "socks5", "socks5h"})):
        mistakes.add("proxy", problem)


def tidy_lines(lines: Iterable[str]) -> list[str]:
    """Without blanks, empty lines and repeats, in order."""
    return list(dict.fromkeys(line.strip() for line in lines if line.strip()))


def path_problem(path: str) -> str:
    """A sentence why this is no folder's path on a host, or an empty string."""
    if any(ord(character) < 32 for character in path):
        return _("A path cannot hold line breaks or control characters.")
    if not path.startswith(("/", "~/")) or path.strip("/") in {"", "~"}:
        return _("Give a whole path, beginning with / or with ~/.")
    if ".." in path.split("/"):
        return _("Give the path without .. in it.")
    if len(path) > _LONGEST_PATH:
        return _("A path has at most 255 characters.")
    return ""


def _url_problem(url: str, schemes: set[str]) -> str:
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return _("This is not a URL.")
    if parts.scheme not in schemes or not (parts.hostname or parts.scheme == "file") or not has_port:
        return _("Give a whole URL, for example https://packages.example.com/simple.")
    if parts.username or parts.password:
        return _("Leave user and password out: put them into ~/.netrc or pip's settings on the host.")
    if any(character.isspace() for character in url) or len(url) > 255:
        return _("A URL has no blanks and at most 255 characters.")
    return ""


class GivenCredentials(Protocol):
    """What a person entered to sign in with."""

    private_key: str
    passphrase: str
    password: str
    generate_key: bool


def set_credentials(host: Host, mistakes: Mistakes, given: GivenCredentials) -> None:
    """Put the given credentials on an SSH host's row; an empty one leaves what is there.

    What the chosen way does not use is forgotten.
    """
    if host.kind == HostKind.LOCAL:
        host.private_key = host.passphrase = host.password = host.public_key = ""
        return
    way = HostAuth(host.auth) if host.auth in HostAuth.values else HostAuth.NONE
    if not way.by_password:
        host.password = ""
    elif given.password:
        host.password = given.password
    elif not has_secret(host, "password"):
        mistakes.add("password", _("Give the password to sign in with."))
    elif not is_readable(host, "password"):
        mistakes.add("password", _("The stored secret cannot be read: enter it again."))
    if way.by_key:
        _set_key(host, mistakes, given)
    else:
        host.private_key = host.passphrase = host.public_key = ""


def _set_key(host: Host, mistakes: Mistakes, given: GivenCredentials) -> None:
    comment = f"kvadmin-{host.name}"
    if given.generate_key:
        pair = keys.generate(comment)
        host.private_key, host.public_key, host.passphrase = pair.private, pair.public, ""
    elif given.private_key.strip():
        try:
            host.public_key = keys.public_line(given.private_key, given.passphrase, comment)
        except keys.KeyProblem as problem:
            mistakes.add(problem.field, f"{problem.message} {problem.remedy}".strip())
            return
        host.private_key, host.passphrase = keys.tidy(given.private_key), given.passphrase
    elif not is_readable(host, "private_key", "passphrase"):
        mistakes.add("private_key", _("The stored secret cannot be read: enter it again."))
    elif not host.private_key:
        mistakes.add("private_key", _("Paste or upload a private key, or let one be generated."))
