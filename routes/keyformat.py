"""A gateway key's text: ``sk-kv-``, 12 characters of public id, 40 of secret, letters and digits only.

What is kept is the HMAC-SHA256 of the whole text under the installation's pepper: with random secrets of
238 bits a slow hash adds nothing but time. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string

PREFIX = "sk-kv-"
PUBLIC_LENGTH = 12
SECRET_LENGTH = 40
ALPHABET = string.ascii_letters + string.digits
_LENGTH = len(PREFIX) + PUBLIC_LENGTH + SECRET_LENGTH
_ALLOWED = frozenset(ALPHABET)


def new_key() -> tuple[str, str]:
    """(public id, the whole text that its holder sends)."""
    public_id = "".join(secrets.choice(ALPHABET) for _ in range(PUBLIC_LENGTH))
    return public_id, PREFIX + public_id + "".join(secrets.choice(ALPHABET) for _ in range(SECRET_LENGTH))


def public_id(text: str) -> str | None:
    """The public id within a key of ours; None for a text that has another form."""
    if len(text) != _LENGTH or not text.startswith(PREFIX) or not _ALLOWED.issuperset(text[len(PREFIX) :]):
        return None
    return text[len(PREFIX) : len(PREFIX) + PUBLIC_LENGTH]


def digest(text: str, pepper: str) -> bytes:
    """The 32 bytes that are kept of a key."""
    return hmac.digest(pepper.encode(), text.encode("utf-8", "surrogateescape"), hashlib.sha256)


def masked(public: str) -> str:
    """How a key is shown after it was issued."""
    return f"{PREFIX}{public}…"
