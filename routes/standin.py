"""A signed token that stands for a key, so that the console can call the gateway under the key's own
bounds without knowing its secret. Pure.

``kvst-`` + base64url(JSON) + ``.`` + base64url(HMAC-SHA256), signed with a key that is derived from the
installation's pepper. It lives for a minute, names one key and one acting user, and says what for.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass

PREFIX = "kvst-"
LIFE_S = 60
#: clocks of console and gateway may differ by this much
SKEW_S = 5
VIAS = frozenset({"playground", "verify", "load_test"})


@dataclass(slots=True, frozen=True)
class StandIn:
    key_id: int
    user_id: int
    via: str
    expires_at: float


def _sign(payload: bytes, pepper: str) -> bytes:
    own = hmac.digest(pepper.encode(), b"kvadmin stand-in token", hashlib.sha256)
    return hmac.digest(own, payload, hashlib.sha256)


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def sign(key_id: int, user_id: int, via: str, pepper: str, now: float) -> str:
    """The token's text. ``via`` is one of VIAS; ``now`` Unix seconds."""
    if via not in VIAS:
        raise ValueError(f"{via!r} is none of {', '.join(sorted(VIAS))}")
    payload = json.dumps(
        {"key": key_id, "user": user_id, "via": via, "until": now + LIFE_S}, separators=(",", ":")
    ).encode()
    return f"{PREFIX}{_encode(payload)}.{_encode(_sign(payload, pepper))}"


def verify(text: str, pepper: str, now: float) -> StandIn | None:
    """What the token says; None if it is not ours, was changed, or is too old or too new."""
    if not text.startswith(PREFIX):
        return None
    payload_text, dot, signature_text = text[len(PREFIX) :].partition(".")
    try:
        payload, signature = _decode(payload_text), _decode(signature_text)
    except ValueError:
        return None
    if not dot or not hmac.compare_digest(signature, _sign(payload, pepper)):
        return None
    fields = json.loads(payload)
    until = float(fields["until"])
    if not now - SKEW_S <= until <= now + LIFE_S + SKEW_S:
        return None
    return StandIn(int(fields["key"]), int(fields["user"]), str(fields["via"]), until)
