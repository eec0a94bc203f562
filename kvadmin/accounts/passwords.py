"""One-time passwords that an administrator hands on."""

from __future__ import annotations

import secrets

#: letters and digits that are not mistaken for each other when read aloud or off a screen
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def one_time_password() -> str:
    """Four groups of five: 99 bits, easy to type."""
    return "-".join("".join(secrets.choice(_ALPHABET) for _ in range(5)) for _ in range(4))
