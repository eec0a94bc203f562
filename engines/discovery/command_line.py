"""Is this process a vLLM server, and what was it started with?"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

_PYTHON = re.compile(r"python(\d+(\.\d+)*)?$")
_MODULES = {"vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main", "vllm"}
_OPTION = re.compile(r"--|-[A-Za-z]")
#: vLLM's own title of an HTTP server process; its arguments are gone then
_TITLE = re.compile(r"^VLLM::APIServer")
_SECRET = re.compile(r"^--[a-z0-9-]*(api[-_]key|token|password|secret)$")
#: options whose name looks secret and whose value is none
_NOT_SECRET = {
    "--tokenizer", "--max-tokens", "--return-tokens-as-token-ids", "--max-num-batched-tokens",
}  # fmt: skip
MASK = "****"


@dataclass(frozen=True)
class ServeCommand:
    """A server's command line. ``argv`` has secrets masked; ``retitled`` when only a title was left."""

    argv: list[str]
    model: str = ""
    served_names: list[str] = field(default_factory=list)
    host: str = ""
    port: int | None = None
    environment: str = ""
    retitled: bool = False


def serve_command(argv: list[str]) -> ServeCommand | None:
    """The server that this command line starts, or None when it is no vLLM server."""
    if not argv:
        return None
    if _TITLE.match(argv[0]):
        return ServeCommand(argv=[argv[0].strip()], retitled=True)
    found = _split(argv)
    if found is None:
        return None
    place, rest = found
    return ServeCommand(
        argv=mask(argv),
        model=_model(rest),
        served_names=_values(rest, "--served-model-name"),
        host=(_values(rest, "--host") or [""])[0],
        port=_port(rest),
        environment=_environment(place),
    )


def _split(argv: list[str]) -> tuple[str, list[str]] | None:
    """(program or interpreter, arguments of the server); None when this is something else."""
    name = PurePosixPath(argv[0]).name
    if name == "vllm":
        return (argv[0], argv[2:]) if argv[1:2] == ["serve"] else None
    if not _PYTHON.match(name):
        return None
    position = 1
    while position < len(argv):
        word = argv[position]
        if word == "-m":
            module = argv[position + 1] if position + 1 < len(argv) else ""
            rest = argv[position + 2 :]
            if module not in _MODULES:
                return None
            if module.endswith("api_server"):
                return argv[0], rest
            return (argv[0], rest[1:]) if rest[:1] == ["serve"] else None
        if word in {"-X", "-W"}:
            position += 2
        elif word.startswith("-"):
            position += 1
        elif PurePosixPath(word).name == "vllm":
            return (word, argv[position + 2 :]) if argv[position + 1 : position + 2] == ["serve"] else None
        elif word.endswith("vllm/entrypoints/openai/api_server.py"):
            return argv[0], argv[position + 1 :]
        else:
            return None
    return None


def _values(arguments: list[str], option: str) -> list[str]:
    """The values of an option's last use: both --x a b and --x=a."""
    found: list[str] = []
    for position, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") != option:
            continue
        if equals:
            found = [value]
            continue
        found = []
        for following in arguments[position + 1 :]:
            if _OPTION.match(following):
                break
            found.append(following)
    return found


def _model(arguments: list[str]) -> str:
    if arguments and not arguments[0].startswith("-"):
        return arguments[0]
    return (_values(arguments, "--model") or [""])[0]


def _port(arguments: list[str]) -> int | None:
    text = (_values(arguments, "--port") or ["8000"])[0]
    return int(text) if text.isdigit() else None


def _environment(program: str) -> str:
    """The folder of the virtual environment a program lies in: what is above its bin."""
    path = PurePosixPath(program)
    return str(path.parent.parent) if path.is_absolute() and path.parent.name == "bin" else ""


def mask(argv: list[str]) -> list[str]:
    """The command line with the values of secret options replaced."""
    shown: list[str] = []
    hiding = False
    for word in argv:
        name, equals, _value = word.partition("=")
        if word.startswith("--"):
            secret = bool(_SECRET.match(name.replace("_", "-"))) and name not in _NOT_SECRET
            hiding = secret and not equals
            shown.append(f"{name}={MASK}" if secret and equals else word)
        else:
            shown.append(MASK if hiding else word)
    return shown
