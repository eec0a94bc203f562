"""Commands in containers: a ``docker run`` line, and compose files, Kubernetes manifests or bare lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from engines.vllm import catalog
from engines.vllm.notes import Note, Unreadable, error, gettext_noop, info, warning
from engines.vllm.shellwords import split_words

_RUNNERS = {"docker", "podman", "nerdctl"}
#: the image: its last part begins with vllm, as in vllm/vllm-openai:v0.10.2
IMAGE = re.compile(r"(?:^|/)vllm[\w.-]*(?::(?P<tag>[\w.-]+))?(?:@\S+)?$")
#: options of ``docker run`` without a value; short ones may stand together, as in -it
_SWITCHES = {
    "--detach",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--rm",
    "--tty",
}
_SHORT_SWITCHES = re.compile(r"-[ditPq]+")
#: how a YAML text begins: a list, a document, a list in brackets, a key
_YAML = re.compile(r"""\s*(?:-\s+\S|---\s*$|\[\s*(?:$|["'-])|["']?[\w.-]+["']?\s*:(?:\s|$))""")
#: characters of web pages that YAML takes for text
_WEB_BLANKS = re.compile("[\u00a0\u2007\u202f\u3000]")
_WEB_NOTHING = re.compile("[\u200b\u2060\ufeff]")
_LARGEST = 1_000_000


@dataclass
class Container:
    """What a container is started with: ``words`` begin with what vLLM's server gets."""

    words: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    secret_names: list[str] = field(default_factory=list)
    gpus: str = ""
    version: str = ""
    aside: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def read_docker(words: Sequence[str]) -> Container | None:
    """A ``docker run`` line, None if it is none or holds no image of vLLM."""
    names = [word.rsplit("/", 1)[-1] for word in words[:3]]
    if not names or names[0] not in _RUNNERS or "run" not in words[:3]:
        return None
    found = Container()
    position = list(words).index("run") + 1
    while position < len(words):
        word = words[position]
        if not word.startswith("-"):
            break
        name, equals, value = word.partition("=")
        position += 1
        glued = re.fullmatch(r"(-[evpuwhm])(.+)", word, re.DOTALL)
        if glued is not None:
            name, equals, value = glued[1], "=", glued[2]
        switch = name in _SWITCHES or _SHORT_SWITCHES.fullmatch(name)
        if not equals and not switch and position < len(words):
            value = words[position]
            position += 1
        _option(found, name, value)
    if position >= len(words):
        return None
    image = IMAGE.search(words[position])
    if image is None:
        return None
    found.version = _version(image["tag"])
    found.words = _command(list(words[position + 1 :]))
    return found


def _option(found: Container, name: str, value: str) -> None:
    if name in {"-e", "--env"}:
        variable, equals, text = value.partition("=")
        if equals:
            found.environment[variable] = text
        elif variable:
            found.secret_names.append(variable)
    elif name == "--gpus":
        found.gpus = _gpus(value)
    else:
        found.aside.append(f"{name} {value}".strip())


def _gpus(text: str) -> str:
    """``"device=0,1"`` as 0,1; all and counts mean no GPU in particular."""
    device = re.search(r"device=([\w,-]+)", text)
    return device[1] if device else ""


def _version(tag: str | None) -> str:
    match = re.match(r"v?(\d+\.\d+(?:\.\w+)*)", tag or "")
    return match[1] if match else ""


def looks_like_yaml(text: str) -> bool:
    first = next(
        (line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), ""
    )
    return bool(_YAML.match(first))


def read_yaml(text: str) -> Container:
    """The container of vLLM in a YAML text, a bare list of arguments, or a file for ``--config``.

    Raises Unreadable with a sentence.
    """
    notes: list[Note] = []
    if _WEB_BLANKS.search(text) or _WEB_NOTHING.search(text):
        text = _WEB_NOTHING.sub("", _WEB_BLANKS.sub(" ", text))
        notes.append(
            info(
                "blanks_mended",
                gettext_noop("Blanks of a web page were read as plain ones."),
                field="command",
            )
        )
    data = _load(text)
    found = next(_containers(data), None) or _flag_file(data)
    if found is None:
        raise Unreadable(
            error(
                "no_container",
                gettext_noop("No container in this YAML starts a vLLM server."),
                remedy=gettext_noop(
                    "It needs a command or args with vLLM's flags, or an image whose name begins with vllm."
                ),
                field="command",
            )
        )
    found.notes = [*notes, *found.notes]
    return found


def _load(text: str) -> Any:
    if len(text) > _LARGEST:
        raise Unreadable(
            error("yaml_large", gettext_noop("This text is too long to be read."), field="command")
        )
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        raise Unreadable(
            error(
                "not_yaml",
                gettext_noop("This is not YAML at line %(line)d: %(problem)s."),
                remedy=gettext_noop("Paste the whole file, with its indentation."),
                field="command",
                line=mark.line + 1 if mark is not None else 1,
                problem=str(problem.problem or problem.context or "?")[:120],
            )
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise Unreadable(
            error("not_yaml_text", gettext_noop("This cannot be read as YAML."), field="command")
        ) from None
    return documents[0] if len(documents) == 1 else documents


def _containers(data: Any, depth: int = 0, seen: set[int] | None = None) -> Iterator[Container]:
    """Every container that starts vLLM, outermost first. What aliases repeat is looked at once."""
    seen = set() if seen is None else seen
    if depth > 12 or id(data) in seen:
        return
    seen.add(id(data))
    if isinstance(data, Mapping):
        found = _container(data)
        if found is not None:
            yield found
        for value in data.values():
            if isinstance(value, Mapping | list):
                yield from _containers(value, depth + 1, seen)
    elif isinstance(data, list):
        words = _words(data)
        if depth == 0 and words and any(word.startswith("--") for word in words):
            yield Container(words=_command(words))
            return
        for value in data:
            yield from _containers(value, depth + 1, seen)


def _container(data: Mapping[str, Any]) -> Container | None:
    image = data.get("image")
    match = IMAGE.search(image) if isinstance(image, str) else None
    parts = [data.get(key) for key in ("entrypoint", "command", "args")]
    if all(part is None or isinstance(part, list) for part in parts):
        words = _words([word for part in parts for word in part or ()])
    else:
        words = [word for part in parts for word in _words(part)]
    starts = "vllm" in " ".join(words) or any(
        word.split("=")[0] in {"--model", "--max-model-len", "--served-model-name"} for word in words
    )
    if not words or not (match or starts):
        return None
    found = Container(words=_command(words), version=_version(match["tag"]) if match else "")
    _environment(found, data.get("environment", data.get("env")))
    found.gpus = _device_ids(data)
    known = {"image", "entrypoint", "command", "args", "environment", "env", "container_name", "name"}
    found.aside = [str(key) for key in data if key not in known]
    return found


def _words(part: Any) -> list[str]:
    """A command as words: a list, or a text split by the rules of a shell."""
    if isinstance(part, str):
        return split_words(part, field="command").texts
    if isinstance(part, list) and all(isinstance(word, str | int | float | bool) for word in part):
        texts = [str(word).lower() if isinstance(word, bool) else str(word) for word in part]
        if len(texts) >= 3 and texts[0].rsplit("/", 1)[-1] in {"sh", "bash"} and texts[1].endswith("c"):
            return split_words(texts[2], field="command").texts
        # "--flag value" in one item is two words; a value with blanks stays whole
        return [
            piece
            for text in texts
            for piece in (text.split(None, 1) if re.match(r"--?[A-Za-z][\w-]*\s", text) else [text])
        ]
    return []


def _command(words: list[str]) -> list[str]:
    """With ``vllm serve`` in front where the image brings it itself."""
    for position, word in enumerate(words):
        if word.rsplit("/", 1)[-1] == "vllm" and words[position + 1 : position + 2] == ["serve"]:
            return words[position:]
        if word == "-m" and words[position + 1 : position + 2]:
            return words[position - 1 :] if position else ["python", *words]
    return ["vllm", "serve", *words]


def _environment(found: Container, given: Any) -> None:
    if isinstance(given, Mapping):
        for name, value in given.items():
            if value is None:
                found.secret_names.append(str(name))
            else:
                found.environment[str(name)] = _plain(value)
    elif isinstance(given, list):
        for item in given:
            if isinstance(item, str):
                name, equals, value = item.partition("=")
                if equals:
                    found.environment[name] = value
                else:
                    found.secret_names.append(name)
            elif isinstance(item, Mapping) and isinstance(item.get("name"), str):
                if item.get("value") is None:
                    found.secret_names.append(item["name"])
                else:
                    found.environment[item["name"]] = _plain(item["value"])


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _device_ids(data: Mapping[str, Any]) -> str:
    """compose: deploy.resources.reservations.devices[].device_ids"""
    place: Any = data
    for key in ("deploy", "resources", "reservations", "devices"):
        place = place.get(key) if isinstance(place, Mapping) else None
    for device in place if isinstance(place, list) else ():
        ids = device.get("device_ids") if isinstance(device, Mapping) else None
        if isinstance(ids, list):
            return ",".join(str(one) for one in ids)
    return ""


def _flag_file(data: Any) -> Container | None:
    """A file for ``--config``: flags without their hyphens as keys."""
    if not isinstance(data, Mapping):
        return None
    known = [key for key in data if isinstance(key, str) and catalog.resolve(f"--{key}") is not None]
    if not known or len(known) * 2 < len(data):
        return None
    words = ["vllm", "serve"]
    for key, value in data.items():
        flag = f"--{key}".replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is False:
            words.append(f"--no-{flag[2:]}")
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        elif isinstance(value, Mapping):
            words += [flag, json.dumps(value)]
        elif value is not None:
            words += [flag, str(value)]
    return Container(
        words=words,
        notes=[
            info(
                "flag_file",
                gettext_noop("This is a file for --config: its keys were read as flags."),
                field="command",
            )
        ],
    )


def said_of(found: Container) -> list[Note]:
    """What is worth saying about the container itself."""
    notes = list(found.notes)
    if found.version:
        notes.append(
            info(
                "image_version",
                gettext_noop("The image holds vLLM %(version)s; a profile fits any version."),
                field="command",
                version=found.version,
            )
        )
    if found.aside:
        notes.append(
            warning(
                "container_left_out",
                gettext_noop("These belong to the container and were left out: %(what)s."),
                remedy=gettext_noop("A folder that it mounts has to be named by its path on the host."),
                field="command",
                what=", ".join(found.aside)[:300],
            )
        )
    return notes
