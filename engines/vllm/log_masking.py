"""Hides secrets in the bytes of a log without moving any byte: a mask is as long as what it hides.

So an offset into what is shown is an offset into the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from engines.vllm import masking

#: shorter secrets, and shorter beginnings of one at the end of the data, would hide ordinary words
_SHORTEST = 4
#: one line of a secret of several lines is hidden by itself from this length on
_SHORTEST_LINE = 8
#: bytes around a piece that are looked at as well, for what a line says before a secret
CONTEXT_BYTES = 4096
#: what follows a name like one of a secret and is none: "prompt_tokens: 12"
_PLAIN_VALUE = re.compile(r"[-+]?[\d.,_]+[a-zA-Z]{0,2}|None|null|True|False|true|false|\*+")


def forms_of(secrets: Iterable[str]) -> list[bytes]:
    """The byte strings that each secret may be printed as: itself, its lines, inside JSON or a repr."""
    forms: set[str] = set()
    for secret in secrets:
        forms |= {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
        forms.add(repr(secret)[1:-1])
        forms |= {line for line in secret.splitlines() if len(line) >= _SHORTEST_LINE}
    return sorted(form.encode(errors="surrogateescape") for form in forms if len(form) >= _SHORTEST)


def margin_of(forms: Iterable[bytes]) -> int:
    """How many bytes around a piece have to be masked with it, so that no cut secret is seen."""
    return max([CONTEXT_BYTES, *(len(form) for form in forms)])


def unfinished(data: bytes, forms: Iterable[bytes]) -> int:
    """How many bytes at the end are the beginning of a secret whose rest is missing."""
    longest = 0
    for form in forms:
        for length in range(min(len(form) - 1, len(data)), longest, -1):
            if data.endswith(form[:length]):
                longest = length
                break
    return longest


def mask_bytes(data: bytes, forms: Iterable[bytes]) -> bytes:
    """The data with known secrets, and what looks like one, replaced by as many asterisks."""
    forms = list(forms)
    masked = bytearray(data)
    for form in forms:
        # looked for in what came, not in what is masked: two secrets may overlap
        at = data.find(form)
        while at >= 0:
            masked[at : at + len(form)] = b"*" * len(form)
            at = data.find(form, at + 1)
    cut = unfinished(data, forms)
    if cut >= _SHORTEST:
        masked[-cut:] = b"*" * cut
    text = masked.decode(errors="surrogateescape")
    text = masking.hide_pairs(text, _stars)
    return masking.hide_shapes(text, _stars).encode(errors="surrogateescape")


def _stars(value: str) -> str:
    if _PLAIN_VALUE.fullmatch(value):
        return value
    return "*" * len(value.encode(errors="surrogateescape"))
