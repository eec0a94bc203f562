"""Why a secret that somebody wants to keep using is too easy to guess or cannot be sent. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter

from engines.vllm.notes import Note, error, gettext_noop

SHORTEST = 20
LONGEST = 512
#: bits that a random secret has at least; an estimate from how often each character comes
LEAST_BITS = 64
_PLACEHOLDERS = (
    "empty", "changeme", "password", "secret", "your-api-key", "your_api_key", "yourapikey", "example",
    "token-abc123", "test", "dummy", "none", "null", "sk-xxx", "letmein", "admin", "qwerty",
)  # fmt: skip
_RUN = re.compile(r"(.)\1{4,}|(.{2,16})\2{2,}")


def weaknesses(secret: str) -> list[Note]:
    """Every reason not to take it; empty for one that may be kept."""
    found: list[Note] = []
    if len(secret) < SHORTEST:
        found.append(
            _reason("secret_short", gettext_noop("It has fewer than %(least)d characters."), least=SHORTEST)
        )
    if len(secret) > LONGEST:
        found.append(
            _reason("secret_long", gettext_noop("It has more than %(most)d characters."), most=LONGEST)
        )
    if not secret.isascii() or any(not "!" <= letter <= "~" for letter in secret):
        found.append(
            _reason(
                "secret_not_sendable",
                gettext_noop("It holds blanks or characters that do not go into an HTTP header."),
            )
        )
    folded = secret.lower()
    if any(folded == word or (len(word) > 4 and folded.startswith(word)) for word in _PLACEHOLDERS):
        found.append(_reason("secret_placeholder", gettext_noop("It is a placeholder that others use, too.")))
    elif _RUN.search(secret) or longest_sequence(folded) >= 6 or _repeats(secret):
        found.append(
            _reason(
                "secret_pattern", gettext_noop("It holds a pattern, such as repeated or counting characters.")
            )
        )
    if not found and bits(secret) < LEAST_BITS:
        found.append(
            _reason("secret_guessable", gettext_noop("It uses too few different characters to be random."))
        )
    return found


def bits(secret: str) -> float:
    """Shannon's entropy of its characters times its length: an upper bound, good against the obvious."""
    counts = Counter(secret)
    each = -sum(count / len(secret) * math.log2(count / len(secret)) for count in counts.values())
    return each * len(secret)


def longest_sequence(text: str) -> int:
    """Characters of the longest run that counts up or down by one: abcdef, 987654."""
    longest, run, step = min(len(text), 1), 1, 0
    for before, now in itertools.pairwise(text):
        difference = ord(now) - ord(before)
        if difference in {1, -1} and (run == 1 or difference == step):
            run += 1
        else:
            run = 2 if difference in {1, -1} else 1
        step = difference
        longest = max(longest, run)
    return longest


def _repeats(secret: str) -> bool:
    """Whether it is a short piece said again and again."""
    return any(
        len(secret) >= 2 * size and secret == (secret[:size] * (len(secret) // size + 1))[: len(secret)]
        for size in range(1, len(secret) // 2 + 1)
    )


def _reason(code: str, message: str, **params: int) -> Note:
    return error(code, message, field="secret", **params)
