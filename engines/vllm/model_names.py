"""Names of models that people write and that do not exist."""

from __future__ import annotations

import re

from engines.vllm.notes import Note, gettext_noop, mend, warning

#: the dense Qwen3 models have one checkpoint for both ways of answering, without -Instruct in its name
_QWEN3 = re.compile(r"Qwen/Qwen3-(0\.6B|1\.7B|4B|8B|14B|32B)-Instruct", re.IGNORECASE)


def real_name(model: str) -> tuple[str, Note | None]:
    """The model's name as it is published, and a note if that is another one than was written."""
    match = _QWEN3.fullmatch(model)
    if match is None:
        return model, None
    name = f"Qwen/Qwen3-{match[1].upper()}"
    return name, warning(
        "model_renamed",
        gettext_noop("There is no %(written)s: Qwen3 has no -Instruct of this size, %(name)s was taken."),
        field="model",
        mends=(mend(gettext_noop("Keep %(written)s"), {"model": model}, written=model),),
        written=model,
        name=name,
    )
