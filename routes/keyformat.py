"""A gateway key's text: ``sk-kv-``, 12 characters of public id, 40 of secret, letters and digits only.

What is kept is the HMAC-SHA256 of the whole text under the installation's pepper: with random secrets of
238 bits a slow hash adds nothing but time. Pure.
"""

from __future__ import annotations

import hashlib
import secrets
import string
from functools import lru_cache

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


@lru_cache(maxsize=4)
def _padded(pepper: str) -> tuple[hashlib._Hash, hashlib._Hash]:
    """SHA-256 of the inner and the outer pad (RFC 2104), which is half of an HMAC's work."""
    key = pepper.encode()
    if len(key) > 64:
        key = hashlib.sha256(key).digest()
    key = key.ljust(64, b"\0")
    return hashlib.sha256(bytes(n ^ 0x36 for n in key)), hashlib.sha256(bytes(n ^ 0x5C for n in key))


def digest(text: str, pepper: str) -> bytes:
    """The 32 bytes that are kept of a key: HMAC-SHA256, in a third of the time hmac.digest takes."""
    inner, outer = _padded(pepper)
    inner, outer = inner.copy(), outer.copy()
    inner.update(text.encode("utf-8", "surrogateescape"))
    outer.update(inner.digest())
    return outer.digest()


def masked(public: str) -> str:
    """How a key is shown after it was issued."""
    return f"{PREFIX}{public}…"
