"""Which key a request comes with, and whether it may. Pure.

What people paste is cleaned of what cannot belong to a key (blanks, quotes, zero-width characters, a second
``Bearer``); the error says so if the key is refused all the same. No message holds any part of a key.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from routes import keyformat, standin
from routes.gateway.faults import Fault
from routes.gateway.records import KeyRecord, Snapshot

#: what surrounds a key that was copied from a page, a file or a chat
WIDTHLESS = "\ufeff\u200b\u200c\u200d\u200e\u200f\u2060\u00ad"
BLANKS = " \t\r\n\v\f\u00a0\u0085\u1680\u2028\u2029\u202f\u205f\u3000" + WIDTHLESS
BLANKS += "".join(chr(code) for code in range(0x2000, 0x200B))
QUOTES = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb<>"
STRIPPED = BLANKS + QUOTES
LONGEST = 512
_USUAL = b"Bearer " + keyformat.PREFIX.encode()


@dataclass(slots=True, frozen=True)
class Presented:
    """A key's text as it is looked up. ``cleaned`` names what was taken off, "" for nothing; ``public`` is
    the id within it, where it has been looked for already."""

    text: str
    cleaned: str = ""
    public: str | None = None


@dataclass(slots=True, frozen=True)
class Caller:
    """``via`` and ``user_id`` are set when the console calls in the key's place."""

    key: KeyRecord
    via: str = ""
    user_id: int | None = None


def _invalid(message: str) -> Fault:
    return Fault(401, "invalid_api_key", message, headers={"www-authenticate": "Bearer"})


def presented(headers: Mapping[bytes, bytes]) -> Presented:
    """The key in ``Authorization`` or ``x-api-key``. Raises Fault where there is none.

    ``headers`` have names in lower case.
    """
    authorization = headers.get(b"authorization")
    if authorization is not None:
        if authorization[:13] == _USUAL:
            plain = authorization[7:].decode("latin-1")
            public = keyformat.public_id(plain)
            if public:
                return Presented(plain, "", public)
        found = _from_authorization(authorization)
        if found is not None:
            return found
    own = headers.get(b"x-api-key")
    if own is not None:
        found = _clean(_text(own))
        if found.text:
            return found
    if authorization is not None or own is not None:
        raise _invalid(
            "The request has a header for a key and no key in it. Send `Authorization: Bearer KEY` or "
            "`x-api-key: KEY`."
        )
    raise _invalid(
        "The request has no key. Send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`: "
        "in most clients this is the setting api_key."
    )


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _from_authorization(value: bytes) -> Presented | None:
    text = _text(value)
    outer = text.strip(STRIPPED)
    scheme, rest = outer[:6], outer[6:]
    if scheme.lower() == "bearer" and (not rest or rest[0] in STRIPPED or rest[0] == ":"):
        inner = rest.removeprefix(":").strip(STRIPPED)
        if inner[:6].lower() == "bearer" and inner[6:7] in STRIPPED:
            inner = inner[6:].strip(STRIPPED)
            return Presented(inner, "a second `Bearer`") if inner else None
        if not inner:
            return None
        around = text.replace(scheme, "", 1).replace(inner, "", 1)
        # one blank after Bearer belongs there
        return Presented(inner, "" if around == " " else _what(around))
    if scheme.lower() == "basic " or (scheme[:5].lower() == "basic" and rest):
        raise _invalid("The key has to come as `Authorization: Bearer KEY`; this request uses `Basic`.")
    return Presented(outer, "`Bearer ` is missing before the key") if outer else None


def _what(around: str) -> str:
    """What the characters around a key are, in words."""
    kinds = []
    if any(character in QUOTES for character in around):
        kinds.append("quotes")
    if "\t" in around:
        kinds.append("a tab")
    if any(character in WIDTHLESS for character in around):
        kinds.append("a character without width")
    return " and ".join(kinds) or "a blank too many"


def _clean(text: str) -> Presented:
    inner = text.strip(STRIPPED)
    return Presented(inner, "" if inner == text else _what(text.replace(inner, "", 1)))


def _unknown(given: Presented) -> Fault:
    text = given.text
    if given.cleaned.startswith("`Bearer"):
        said = f" {given.cleaned}."
    else:
        said = f" (Around it there was {given.cleaned}, which the gateway took off.)" if given.cleaned else ""
    if text.startswith(keyformat.PREFIX) and keyformat.public_id(text) is None:
        odd = "".join(sorted({c for c in text[len(keyformat.PREFIX) :] if c not in keyformat.ALPHABET}))
        if any(character in STRIPPED for character in odd):
            why = "a blank or a quote is inside it"
        elif odd:
            why = "it has characters that no key has"
        else:
            length = len(keyformat.PREFIX) + keyformat.PUBLIC_LENGTH + keyformat.SECRET_LENGTH
            why = f"it is {len(text)} characters long and a key has {length}"
        return _invalid(f"This key was not copied whole: {why}. Copy it again.{said}")
    return _invalid(
        f"This gateway does not know the key. Check that it was issued here and copied whole.{said}"
    )


def find_key(given: Presented, snapshot: Snapshot, pepper: str, now: float) -> Caller:
    """The key with this text. Raises Fault 401 where it is unknown; nothing else is looked at."""
    text = given.text
    if len(text) > LONGEST:
        if text.startswith(standin.PREFIX):
            raise _invalid("The console's token cannot be read.")
        raise _invalid("What was sent as the key is far longer than any key.")
    public = given.public or keyformat.public_id(text)
    # the digest is made for every text, so that time says nothing about which keys exist
    digest = keyformat.digest(text, pepper)
    if public is not None:
        key = snapshot.keys.get(public)
        if key is not None and hmac.compare_digest(digest, key.digest):
            return Caller(key)
    elif text.startswith(standin.PREFIX):
        token = standin.verify(text, pepper, now)
        key = snapshot.by_id.get(token.key_id) if token else None
        if token is None or key is None:
            raise _invalid("The console's token is not valid any more. Start the call again.")
        return Caller(key, token.via, token.user_id)
    key = snapshot.imported.get(digest)
    if key is not None and hmac.compare_digest(digest, key.digest):
        return Caller(key)
    raise _unknown(given)


def check_key(caller: Caller, address: str, now: float) -> None:
    """Raises Fault where the key may not be used now or from there."""
    key = caller.key
    if key.state == "revoked":
        raise Fault(
            401, "key_revoked", f"The key {key.name!r} was revoked. Ask the owner of its team for another."
        )
    if key.state == "disabled":
        raise Fault(
            401, "key_disabled", f"The key {key.name!r} is disabled. The owner of its team can enable it."
        )
    if key.ends_at is not None and now >= key.ends_at:
        if key.rotated:
            raise Fault(
                401,
                "key_rotated",
                f"The key {key.name!r} was rotated and its overlap is over. Use the key that replaced it.",
            )
        raise Fault(
            401,
            "key_expired",
            f"The key {key.name!r} has expired. The owner of its team can issue another.",
        )
    # the console has been let in by a person's sign-in, from wherever it runs
    if key.addresses and not caller.via and not _inside(address, key):
        raise Fault(
            403,
            "address_not_allowed",
            f"The key {key.name!r} may not be used from {address}. The owner of its team can allow that "
            "address.",
        )


def _inside(address: str, key: KeyRecord) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in key.addresses)
