"""What an engine is to be started with, free of Django and of any host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engines.vllm.notes import Unreadable, error, gettext_noop, mend


@dataclass(frozen=True)
class ServeSpec:
    """``values`` maps field keys to typed values; an absent key is vLLM's default. ``gpus`` is what the
    operator wrote (``0,1`` or ``0-3``, empty for all). ``secrets`` are environment variables whose
    values nobody sees again. ``extra_arguments`` is text, split by shell rules and given to no shell."""

    model: str
    served_names: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    gpus: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_arguments: str = ""

    @property
    def served_name(self) -> str:
        """The name callers use."""
        return self.served_names[0] if self.served_names else self.model

    @property
    def cards(self) -> int:
        """GPUs that one engine of this takes: tensor x pipeline x data parallel."""
        product = 1
        for key in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
            product *= int(self.values.get(key) or 1)
        return product


_INDEX = re.compile(r"(\d{1,3})(?:\s*-\s*(\d{1,3}))?", re.ASCII)
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{4,80}", re.ASCII)


def parse_gpus(text: str) -> list[str]:
    """``0,1``, ``0-3`` or UUIDs as a list for CUDA_VISIBLE_DEVICES; empty text is an empty list.

    Raises Unreadable with a sentence.
    """
    found: list[str] = []
    for part in re.split(r"[,;\s，、]+", re.sub(r"(\d)\s*-\s*(?=\d)", r"\1-", text.strip())):
        if not part:
            continue
        if _UUID.fullmatch(part):
            found.append(part)
            continue
        match = _INDEX.fullmatch(part)
        last = int(match[2] or match[1]) if match else -1
        if match is None or last < int(match[1]):
            raise Unreadable(
                error(
                    "gpus_unreadable",
                    gettext_noop("“%(part)s” names no GPU."),
                    remedy=gettext_noop("Write numbers as nvidia-smi shows them: 0,1 or 0-3, or UUIDs."),
                    field="gpus",
                    mends=(mend(gettext_noop("Name no GPU"), {"gpus": ""}),),
                    part=part[:80],
                )
            )
        found.extend(str(number) for number in range(int(match[1]), last + 1))
    doubled = next((name for position, name in enumerate(found) if name in found[:position]), None)
    if doubled is not None:
        raise Unreadable(
            error(
                "gpu_twice",
                gettext_noop("GPU %(gpu)s is named twice."),
                remedy=gettext_noop("Name each GPU once."),
                field="gpus",
                mends=(mend(gettext_noop("Name it once"), {"gpus": ",".join(dict.fromkeys(found))}),),
                gpu=doubled,
            )
        )
    return found
