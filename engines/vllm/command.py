"""The command and the environment of an engine, from its spec. Pure; no shell is involved."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from engines.vllm.arguments import read_extra
from engines.vllm.fields import fields
from engines.vllm.items import field_words
from engines.vllm.masking import MASK, mask_arguments, mask_environment
from engines.vllm.notes import Unreadable, errors_of
from engines.vllm.releases import Release
from engines.vllm.spec import ServeSpec, parse_gpus
from engines.vllm.translate import translate

#: where an engine listens while nobody has settled it
SAMPLE_ADDRESS = "127.0.0.1"
SAMPLE_PORT = 8000


def serve_command(
    spec: ServeSpec, *, executable: str, bind_address: str, port: int, release: Release | None = None
) -> list[str]:
    """The argument list that starts an engine. ``executable`` is the path of ``vllm``.

    ``release`` is the vLLM that will read it: flags that it says otherwise are translated and those that
    lost their meaning left out (``translate.py``); one that it refuses stays as it is. Without a release
    everything stands as the profile says it. Raises Unreadable if the extra arguments cannot be used.
    """
    words = [executable, "serve", spec.model, "--host", bind_address, "--port", str(port)]
    if spec.served_names:
        words += ["--served-model-name", *spec.served_names]
    extra = _extra_words(spec)
    if release is not None:
        return words + translate(spec, release).words
    for key, field in fields().items():
        words += field_words(field, spec.values.get(key))
    return words + extra


def _extra_words(spec: ServeSpec) -> list[str]:
    if not spec.extra_arguments.strip():
        return []
    extra = read_extra(spec.extra_arguments, spec.values)
    if errors := errors_of(extra.notes):
        raise Unreadable(errors[0])
    return list(extra.words)


def serve_environment(
    spec: ServeSpec, *, api_key: str, marker: str, release: Release | None = None
) -> dict[str, str]:
    """What is added to the environment of the engine's process; it holds secrets.

    ``marker`` names this start in every process of it. vLLM would wipe the environment that /proc
    shows by retitling its processes; SPT_NOENV keeps it. GPU numbers are those of nvidia-smi. What the
    ``release`` takes as a variable instead of a flag is in it too.
    """
    translated = translate(spec, release).variables if release is not None else {}
    environment = {"PYTHONUNBUFFERED": "1", **translated, **spec.environment, **spec.secrets}
    if gpus := parse_gpus(spec.gpus):
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        environment.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if api_key:
        environment["VLLM_API_KEY"] = api_key
    environment["SPT_NOENV"] = "1"
    environment["KVADMIN_START"] = str(marker)
    return environment


def display_environment(spec: ServeSpec) -> dict[str, str]:
    """The operator's variables and the GPUs, secrets masked, as they are shown."""
    shown = mask_environment({**spec.environment, **spec.secrets}, spec.secrets)
    if gpus := parse_gpus(spec.gpus):
        shown["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return shown


def display_command(
    spec: ServeSpec,
    *,
    executable: str = "vllm",
    bind_address: str = SAMPLE_ADDRESS,
    port: int = SAMPLE_PORT,
    release: Release | None = None,
    environment: bool = True,
) -> str:
    """The command over several lines for people, secrets masked; pasted into a shell it gives the same
    argument list (with masks in place of secrets). Raises Unreadable as serve_command does."""
    words = serve_command(spec, executable=executable, bind_address=bind_address, port=port, release=release)
    shown = display_environment(spec) if environment else {}
    if environment and release is not None:
        shown = {**translate(spec, release).variables, **shown}
    return join_lines(
        mask_arguments(words, spec.secrets.values()),
        [f"{name}={shlex.quote(value)}" for name, value in shown.items()],
    )


def join_lines(words: Sequence[str], assignments: Iterable[str] = ()) -> str:
    """A command with a line for each flag, joined by backslashes."""
    lines = list(assignments)
    first = list(words[:3])
    rest = list(words[3:])
    lines.append(" ".join(shlex.quote(word) for word in first))
    line: list[str] = []
    for word in rest:
        if word.startswith("-") and line and not _is_number(word):
            lines.append("  " + " ".join(line))
            line = []
        line.append(shlex.quote(word))
    if line:
        lines.append("  " + " ".join(line))
    return " \\\n".join(lines)


def _is_number(word: str) -> bool:
    return word.lstrip("-").replace(".", "", 1).isdigit()


def masked_extra(spec: ServeSpec) -> str:
    """The extra arguments as they may be shown to anybody or written into the audit."""
    if not spec.extra_arguments.strip():
        return ""
    return shlex.join(mask_arguments(read_extra(spec.extra_arguments).words, spec.secrets.values()))


__all__ = [
    "MASK",
    "SAMPLE_ADDRESS",
    "SAMPLE_PORT",
    "display_command",
    "display_environment",
    "join_lines",
    "masked_extra",
    "serve_command",
    "serve_environment",
]
