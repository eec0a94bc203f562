"""Whether a value will do for a flag of one release."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from engines.vllm import succession
from engines.vllm.fields import parse_size
from engines.vllm.items import Item
from engines.vllm.notes import Mend, Note, error, gettext_noop, info, mend
from engines.vllm.releases import Flag, Release


def wrong_value(item: Item, flag: Flag, release: Release, take_out: Sequence[Mend]) -> Note | None:
    """Why ``release`` refuses the item's value, or None. ``take_out`` mends it by leaving the flag out."""
    if not flag.takes_value or not item.values:
        return None
    dotted = "." in item.written
    if flag.choices and not dotted:
        wrong = next((value for value in item.values if not _among(value, flag.choices)), None)
        if wrong is not None:
            return _not_a_choice(item, flag, release, wrong, take_out)
    method = succession.QUANTIZATION_GONE.get(item.value) if flag.name == "--quantization" else None
    if method is not None and release.at_least(method):
        return error(
            "quantization_gone",
            gettext_noop("vLLM %(version)s no longer reads %(method)s weights by itself."),
            remedy=gettext_noop("Use other weights of the model (AWQ, GPTQ, fp8), or an older vLLM."),
            field=item.key,
            version=release.version,
            method=item.value,
        )
    if item.argument is None or dotted:
        return None
    return _wrong_type(item, flag, take_out)


def _not_a_choice(item: Item, flag: Flag, release: Release, wrong: str, take_out: Sequence[Mend]) -> Note:
    choices = [str(choice) for choice in flag.choices]
    near = next(iter(difflib.get_close_matches(wrong, choices, n=1, cutoff=0.6)), "")
    mends = [*take_out]
    if item.argument is None:
        mends = [mend(gettext_noop("Leave it to vLLM"), {item.key: ""})]
        if near:
            mends.insert(0, mend(gettext_noop("Write %(new)s"), {item.key: near}, new=near))
    return error(
        "choice_unknown_here",
        gettext_noop("vLLM %(version)s has no value “%(value)s” for %(flag)s."),
        remedy=gettext_noop("It takes: %(choices)s."),
        field=item.key,
        mends=mends,
        version=release.version,
        value=wrong[:60],
        flag=item.written,
        choices=", ".join(choices[:24]) + ("…" if len(choices) > 24 else ""),
    )


def _wrong_type(item: Item, flag: Flag, take_out: Sequence[Mend]) -> Note | None:
    wanted = {
        "int": gettext_noop("a whole number"),
        "int_human": gettext_noop("a whole number, with k, m or g behind it if you like"),
        "float": gettext_noop("a number"),
    }
    if flag.kind not in wanted:
        return None
    try:
        if flag.kind == "float":
            float(item.value)
        elif item.value.lower() != "auto":
            parse_size(item.value)
        return None
    except ValueError:
        return error(
            "wrong_type",
            gettext_noop("%(flag)s takes %(what)s; this is “%(value)s”."),
            field=item.key,
            mends=take_out,
            flag=item.written,
            what=info("", wanted[flag.kind]),
            value=item.value[:60],
        )


def _among(value: str, choices: Sequence[Any]) -> bool:
    plain = {str(choice).lower().replace("-", "_") for choice in choices}
    return value.lower().replace("-", "_") in plain
