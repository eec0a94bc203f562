"""What a release does about a flag that a profile leaves alone, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.vllm.fields import value_text
from engines.vllm.notes import gettext_noop
from engines.vllm.releases import Release

#: where the command line says nothing and vLLM decides at start: [since, sentence]
DECIDED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "--enable-prefix-caching": (
        ("0.6.3.post1", gettext_noop("off")),
        ("0.8.0", gettext_noop("on")),
        ("0.11.0", gettext_noop("on, except for hybrid models with state layers")),
        ("0.28.0", gettext_noop("on")),
    ),
    "--enable-chunked-prefill": (
        ("0.6.3.post1", gettext_noop("on only where requests may be longer than 32,768 tokens")),
        ("0.8.0", gettext_noop("on")),
    ),
    "--max-num-batched-tokens": (
        ("0.6.3.post1", gettext_noop("the longest request, at least 2,048; 512 with chunked prefill")),
        ("0.8.0", gettext_noop("8,192 on cards from 70 GiB, else 2,048")),
        ("0.10.2", gettext_noop("8,192 on cards from 70 GiB except the A100, else 2,048")),
        (
            "0.28.0",
            gettext_noop("16,384 on cards from 160 GiB, 8,192 from 70 GiB except the A100, else 2,048"),
        ),
    ),
    "--max-num-seqs": (
        ("0.6.3.post1", gettext_noop("256")),
        ("0.8.0", gettext_noop("1,024 on cards from 70 GiB, else 256")),
        ("0.10.2", gettext_noop("1,024 on cards from 70 GiB except the A100, else 256")),
    ),
    "--block-size": (
        ("0.6.3.post1", gettext_noop("16")),
        ("0.8.0", gettext_noop("16; 64 or 128 for latent attention (MLA)")),
        ("0.11.0", gettext_noop("16, or what the attention backend prefers")),
    ),
    "--async-scheduling": (
        ("0.10.0", gettext_noop("off")),
        ("0.14.0", gettext_noop("on where it works")),
    ),
    "--max-model-len": (("0.6.3.post1", gettext_noop("the model's own limit")),),
    "--api-server-count": (("0.10.0", gettext_noop("one")), ("0.15.0", gettext_noop("as data parallel"))),
    "--served-model-name": (("0.6.3.post1", gettext_noop("the model's name")),),
    "--quantization": (("0.6.3.post1", gettext_noop("as the model's configuration says")),),
    "--enable-log-requests": (("0.10.1", gettext_noop("off: requests are not logged")),),
}


@dataclass(frozen=True)
class Default:
    """``value`` as text, or ``words`` (a message id) where vLLM decides at start; both "" if there is
    nothing to say. ``known`` is False when the release has no such flag."""

    value: str = ""
    words: str = ""
    known: bool = True


def default_of(flag: str, release: Release) -> Default:
    found = release.flags.get(flag)
    if found is None:
        return Default(known=False)
    words = decided(flag, release)
    if words and found.default in (None, "", False):
        return Default(words=words)
    return Default(value=_text(found.default))


def decided(flag: str, release: Release) -> str:
    words = ""
    for since, sentence in DECIDED.get(flag, ()):
        if release.at_least(since):
            words = sentence
    return words


def _text(value: Any) -> str:
    if value in (None, "", [], {}) or (isinstance(value, str) and value.startswith("factory ")):
        return ""
    return value_text(value)


def moved(flag: str, old: Release, new: Release) -> tuple[Default, Default] | None:
    """The defaults of both releases if they differ in what they say; None otherwise, or if one lacks it."""
    before, after = default_of(flag, old), default_of(flag, new)
    if not before.known or not after.known or before == after:
        return None
    return before, after
