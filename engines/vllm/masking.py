"""Hides what may be a secret in anything that is shown, logged or audited."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from engines.vllm import catalog

MASK = "********"

#: a flag, variable or JSON key whose value is a secret by its name
_SECRET_NAME = re.compile(
    r"(api[-_]?keys?|(?<!max_)(?<!num_)(^|[-_])tokens?|secret(s|[-_]key)?|passw(or)?d|passphrase|credentials?"
    r"|access[-_]key([-_]id)?|private[-_]key|auth[-_]?key|authorization)$",
    re.IGNORECASE,
)
#: shapes that only credentials have
_SECRET_SHAPE = re.compile(
    r"hf_[A-Za-z0-9]{16,}"
    r"|sk-[A-Za-z0-9_-]{16,}"
    r"|(?:ghp|gho|ghs|github_pat|glpat|xox[bap])[-_][A-Za-z0-9_-]{16,}"
    r"|AKIA[A-Z0-9]{16}"
    r"|(?<=Bearer )[A-Za-z0-9._~+/=-]{8,}"
    r"|(?<=://)[^\s/:@]*:[^\s/@]+(?=@)"
)
_JSON_PAIR = re.compile(r'(?P<head>"(?P<name>[^"\\]+)"\s*:\s*)"(?P<value>(?:[^"\\]|\\.)+)"')
_PAIR = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)(?P<sign>[=:]\s*)(?P<value>[^\s,;\"'{}]+)")
_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.+-]*")


def is_secret_name(name: str) -> bool:
    """Whether a flag, variable or key holds a secret by its name (HF_TOKEN, --api-key).

    Flags of vLLM are known: one that is an integer, like ``--max-num-batched-tokens``, holds none.
    """
    name = name.split(".")[-1] if name.startswith("-") and "." in name else name
    if name.startswith("--"):
        known = catalog.resolve(name)
        if known is not None and known[0] not in SECRET_FLAGS:
            return False
    plain = name.lstrip("-")
    if re.search(
        r"(max|num|per|batched|scheduled|queued|spec|draft|speculative)[-_](\w+[-_])?tokens?$", plain, re.I
    ):
        return False
    return _SECRET_NAME.search(plain) is not None


SECRET_FLAGS = frozenset({"--api-key", "--hf-token"})


def find_secret(text: str) -> str:
    """What in a text looks like a secret, "" for nothing. Judged by shape and by JSON keys' names."""
    shape = _SECRET_SHAPE.search(text)
    if shape:
        return shape.group()
    for pair in _JSON_PAIR.finditer(text):
        if is_secret_name(pair["name"]):
            return pair["value"]
    return ""


def mask_text(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with known secrets, and what looks like one, replaced."""
    for secret in sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return hide_shapes(hide_pairs(text))


def hide_pairs(text: str, hide: Callable[[str], str] = lambda value: MASK) -> str:
    """The text with the values replaced that stand behind a secret's name."""
    text = _JSON_PAIR.sub(
        lambda pair: (
            f'{pair["head"]}"{hide(pair["value"])}"' if is_secret_name(pair["name"]) else pair.group()
        ),
        text,
    )
    return _PAIR.sub(
        lambda pair: (
            f"{pair['name']}{pair['sign']}{hide(pair['value'])}"
            if is_secret_name(pair["name"])
            else pair.group()
        ),
        text,
    )


def hide_shapes(text: str, hide: Callable[[str], str] = lambda value: MASK) -> str:
    """The text with everything replaced that has a credential's shape."""
    return _SECRET_SHAPE.sub(lambda shape: hide(shape.group()), text)


def mask_arguments(words: Sequence[str], secrets: Iterable[str] = ()) -> list[str]:
    """An argument list with every secret value replaced; its length stays."""
    secrets = list(secrets)
    masked: list[str] = []
    hiding = False
    for word in words:
        flag, equals, _ = word.partition("=")
        is_flag = _FLAG.fullmatch(flag) is not None
        if is_flag:
            hiding = is_secret_name(flag) and not equals
            masked.append(f"{flag}={MASK}" if equals and is_secret_name(flag) else mask_text(word, secrets))
        else:
            masked.append(MASK if hiding else mask_text(word, secrets))
    return masked


def mask_environment(environment: dict[str, str], secret_names: Iterable[str] = ()) -> dict[str, str]:
    """Variables with the values of secret ones replaced; those named like secrets are hidden as well."""
    hidden = set(secret_names)
    return {
        name: MASK if name in hidden or is_secret_name(name) else mask_text(value)
        for name, value in environment.items()
    }
