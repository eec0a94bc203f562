"""Base URLs of outside targets, as people write them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from engines.vllm.notes import Note, Unreadable, error, gettext_noop

LONGEST = 500
_ENDPOINT = re.compile(
    r"/v1/(?:chat/completions|completions|responses|embeddings|messages|models|rerank|score)/?$"
)
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")


@dataclass(frozen=True)
class BaseUrl:
    """``text`` has no trailing slash and no /v1."""

    text: str
    host: str

    @property
    def is_loopback(self) -> bool:
        """Whether it names the machine that asks, so that it means another one from each place."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")


def read_base_url(text: str) -> BaseUrl:
    """With and without /v1 and trailing slashes. ``Unreadable`` says what is wrong with it."""
    text = text.strip().rstrip("/")
    if not text:
        raise _wrong("base_url_missing", gettext_noop("Give the target's base URL."))
    if len(text) > LONGEST or any(letter.isspace() or not letter.isprintable() for letter in text):
        raise _wrong("base_url_unreadable", gettext_noop("A base URL has no blanks."))
    if "://" not in text:
        raise _wrong(
            "base_url_no_scheme",
            gettext_noop("The base URL has to begin with http:// or https://."),
            gettext_noop("Example: http://%(text)s/v1"),
            text=text[:80].removesuffix("/v1"),
        )
    try:
        parts = urlsplit(text)
        _port = parts.port
    except ValueError:
        raise _wrong("base_url_unreadable", gettext_noop("This base URL cannot be read.")) from None
    if parts.scheme not in {"http", "https"}:
        raise _wrong(
            "base_url_no_scheme", gettext_noop("The base URL has to begin with http:// or https://.")
        )
    if parts.username is not None or parts.password is not None:
        raise _wrong(
            "base_url_has_credentials",
            gettext_noop("Leave user and password out of the base URL."),
            gettext_noop("The target's key has a field of its own."),
        )
    host = parts.hostname or ""
    if not (":" in host or _HOST.fullmatch(host)):
        raise _wrong("base_url_unreadable", gettext_noop("This base URL names no host."))
    if parts.query or parts.fragment:
        raise _wrong("base_url_has_query", gettext_noop("Leave out “?” and “#” and what follows them."))
    if _ENDPOINT.search(parts.path):
        raise _wrong(
            "base_url_is_endpoint",
            gettext_noop("This is the address of one endpoint."),
            gettext_noop("The base URL ends before it: %(text)s"),
            text=_ENDPOINT.sub("/v1", text),
        )
    path = re.sub(r"(?:/v1)?/*$", "", parts.path)
    return BaseUrl(f"{parts.scheme}://{parts.netloc.lower()}{path}", host)


def _wrong(code: str, message: str, remedy: str = "", **params: str) -> Unreadable:
    note: Note = error(code, message, field="base_url", remedy=remedy, **params)
    return Unreadable(note)
