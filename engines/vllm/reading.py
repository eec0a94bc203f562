"""Reads a command line back into a spec: a pasted ``vllm serve …``, or the arguments of a process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engines.vllm.arguments import OWN_FLAGS, Argument, read_arguments
from engines.vllm.containers import Container, looks_like_yaml, read_docker, read_yaml, said_of
from engines.vllm.fields import Field, Kind, fields_by_flag, read_value
from engines.vllm.masking import find_secret, is_secret_name
from engines.vllm.model_names import real_name
from engines.vllm.notes import Note, Unreadable, error, gettext_noop, info, warning
from engines.vllm.shellwords import Word, split_words
from engines.vllm.spec import ServeSpec

_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
#: as in "$ ", "user@host:~$ ", "[user@host ~]# ", "(base) $ "
_PROMPT = re.compile(r"^\s*(?:\([\w.-]+\)\s*)?(?:(?:\[[^\]\n]*\]|[\w.@:~/-]*)[$#%>]|>>>)\s+(?=\S)")
_KVADMIN_VARIABLES = {"VLLM_API_KEY", "KVADMIN_START", "SPT_NOENV", "CUDA_DEVICE_ORDER"}


@dataclass
class Command:
    """What a command line says. ``host``, ``port`` and ``api_key`` belong to an engine, not to a
    profile; ``api_key`` is a secret. ``understood`` is False when this is no vLLM server's command."""

    spec: ServeSpec = field(default_factory=lambda: ServeSpec(""))
    notes: list[Note] = field(default_factory=list)
    host: str = ""
    port: int | None = None
    api_key: str = field(default="", repr=False)
    understood: bool = True


def read_text(text: str) -> Command:
    """Read what was pasted: a command (prompts, variables in front, redirections behind and line breaks
    damaged by a web page are understood, and said), a ``docker run`` line, a compose file, a manifest or
    a list of arguments in YAML."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    if looks_like_yaml(plain):
        try:
            container = read_yaml(plain)
        except Unreadable as problem:
            return Command(understood=False, notes=[problem.note])
        return _published(_of_container(container))
    split = split_words("\n".join(_PROMPT.sub("", line) for line in plain.split("\n")), field="command")
    words, cut = _one_command(split.words)
    notes = [note for note in split.notes if not (cut and note.code == "literal_operator")]
    if cut:
        notes.append(
            info(
                "rest_left_out",
                gettext_noop("“%(rest)s” belongs to a shell and was left out."),
                field="command",
                rest=cut[:80],
            )
        )
    environment: dict[str, str] = {}
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in _WRAPPERS):
        word = words.pop(0)
        if "=" in word:
            name, _, value = word.partition("=")
            environment[name] = value
    container = read_docker(words)
    command = read_words(words, environment) if container is None else _of_container(container)
    command.notes = notes + command.notes
    return _published(command)


def _of_container(container: Container) -> Command:
    environment = dict(container.environment)
    if container.gpus:
        environment.setdefault("CUDA_VISIBLE_DEVICES", container.gpus)
    visible = environment.pop("NVIDIA_VISIBLE_DEVICES", "")
    if visible not in {"", "all", "none", "void"}:
        environment.setdefault("CUDA_VISIBLE_DEVICES", visible)
    command = read_words(container.words, environment)
    secrets = {name: "" for name in container.secret_names if name not in _KVADMIN_VARIABLES}
    command.spec = replace(command.spec, secrets={**secrets, **command.spec.secrets})
    command.notes = said_of(container) + command.notes
    return command


def _published(command: Command) -> Command:
    """With the model under the name it is published under."""
    name, note = real_name(command.spec.model)
    if note is not None:
        command.spec = replace(command.spec, model=name)
        command.notes.append(note)
    return command


_WRAPPERS = {"export", "env", "exec", "nohup", "sudo", "time", "setsid", "uv", "run", "poetry", "uvx"}


def _one_command(words: Sequence[Word]) -> tuple[list[str], str]:
    """The words up to the first unquoted pipe, redirection, ``&`` or ``;``, and what was cut."""
    for position, word in enumerate(words):
        bare = re.match(r"^\d?(?:&?>>?&?|<|\||&|;)", word.text) if word.operators else None
        if bare:
            return [w.text for w in words[:position]], " ".join(w.text for w in words[position:])
        if word.operators and word.text.endswith(";") and not word.quoted:
            kept = [w.text for w in words[:position]] + [word.text.rstrip(";")]
            return kept, " ".join([";", *(w.text for w in words[position + 1 :])]).strip()
    return [word.text for word in words], ""


def read_words(words: Sequence[str], environment: Mapping[str, str] | None = None) -> Command:
    """Read an argument list (of a pasted command or of /proc/<pid>/cmdline)."""
    found = _arguments_of(words)
    if found is None:
        return Command(
            understood=False,
            notes=[
                error(
                    "no_command",
                    gettext_noop("This is no command that starts a vLLM server."),
                    remedy=gettext_noop("It begins with “vllm serve” or “python -m %(module)s”."),
                    field="command",
                    module=_MODULES[0],
                )
            ],
        )
    reader = _Reader()
    for argument in read_arguments(found):
        reader.take(argument)
    return reader.command(environment or {})


def _arguments_of(words: Sequence[str]) -> list[str] | None:
    """What follows ``vllm serve``, the server's module or a container's image; None if there is none."""
    for position, word in enumerate(words):
        name = word.rsplit("/", 1)[-1]
        following = words[position + 1] if position + 1 < len(words) else ""
        if name == "vllm" and following == "serve":
            return list(words[position + 2 :])
        if word == "-m" and following in _MODULES:
            rest = list(words[position + 2 :])
            return rest[1:] if rest[:1] == ["serve"] else rest
        if word.startswith("-m") and word[2:] in _MODULES:
            return list(words[position + 1 :])
        if re.search(r"vllm/entrypoints/(openai/api_server|cli/main)\.py$", word):
            rest = list(words[position + 1 :])
            return rest[1:] if rest[:1] == ["serve"] else rest
    return None


def _is_secret(name: str, value: str) -> bool:
    return is_secret_name(name) or bool(find_secret(value))


class _Reader:
    def __init__(self) -> None:
        self.model = ""
        self.names: list[str] = []
        self.values: dict[str, Any] = {}
        self.extra: list[str] = []
        self.notes: list[Note] = []
        self.aside: list[str] = []
        self.host, self.port, self.api_key = "", None, ""
        self.secrets: dict[str, str] = {}

    def take(self, argument: Argument) -> None:
        field = fields_by_flag().get(argument.flag)
        if not argument.written:
            self.take_word(argument.values[0])
        elif argument.flag in OWN_FLAGS:
            self.take_own(argument)
        elif argument.flag == "--hf-token" and argument.values:
            self.secrets["HF_TOKEN"] = argument.values[-1]
            self.notes.append(
                info(
                    "token_moved",
                    gettext_noop("The value of %(flag)s became the secret variable HF_TOKEN."),
                    field="command",
                    flag=argument.written,
                )
            )
        elif field is not None and not argument.dotted and self.take_field(field, argument):
            pass
        else:
            self.take_extra(argument)

    def take_word(self, word: str) -> None:
        if not self.model:
            self.model = word
            return
        self.notes.append(
            warning(
                "word_left_out",
                gettext_noop("“%(word)s” belongs to no flag and was left out."),
                field="command",
                word=word[:80],
            )
        )

    def take_own(self, argument: Argument) -> None:
        value = argument.values[-1] if argument.values else ""
        if argument.flag in {"--model", "--model-tag"}:
            self.model = value
        elif argument.flag == "--served-model-name":
            self.names = list(argument.values)
        elif argument.flag == "--api-key":
            self.api_key = argument.values[0] if argument.values else ""
            self.notes.append(
                info(
                    "key_left_out",
                    gettext_noop("The key was left out: each engine gets one of its own."),
                    field="command",
                )
            )
        else:
            if argument.flag == "--host":
                self.host = value
            elif argument.flag == "--port" and value.isascii() and value.isdigit():
                self.port = int(value)
            self.aside.append(" ".join(argument.words))

    def take_field(self, field: Field, argument: Argument) -> bool:
        try:
            value = self.value_of(field, argument)
        except Unreadable as problem:
            self.notes.append(problem.note)
            return False
        if field.key in self.values:
            self.notes.append(
                warning(
                    "flag_twice",
                    gettext_noop("%(flag)s stands there twice; the last one was taken, as vLLM does."),
                    field=field.key,
                    flag=field.flag,
                )
            )
        if value is None:
            self.values.pop(field.key, None)
        else:
            self.values[field.key] = value
        return True

    def value_of(self, field: Field, argument: Argument) -> Any:
        if field.kind is Kind.BOOL:
            said = argument.values[-1] if argument.values else "true"
            on = read_value(field, said)
            return read_value(field, not argument.off if on else argument.off)
        raw = argument.values[-1] if argument.values else ""
        if field.key == "max_model_len" and raw == "-1":
            return "auto"
        if not raw:
            raise Unreadable(
                error(
                    "value_missing",
                    gettext_noop("%(flag)s needs a value after it."),
                    field=field.key,
                    flag=argument.written,
                )
            )
        return read_value(field, raw)

    def take_extra(self, argument: Argument) -> None:
        if is_secret_name(argument.written):
            self.notes.append(
                warning(
                    "secret_left_out",
                    gettext_noop("%(flag)s was left out: it would put a secret on the command line."),
                    remedy=gettext_noop("Put it into a secret environment variable."),
                    field="command",
                    flag=argument.written,
                )
            )
            return
        self.extra += argument.words

    def command(self, environment: Mapping[str, str]) -> Command:
        plain = {name: value for name, value in environment.items() if name not in _KVADMIN_VARIABLES}
        gpus = plain.pop("CUDA_VISIBLE_DEVICES", "")
        secrets = {name: plain.pop(name) for name in list(plain) if _is_secret(name, plain[name])}
        if self.aside:
            self.notes.append(
                info(
                    "address_left_out",
                    gettext_noop("%(flags)s: address and port are settled where the engine is made."),
                    field="command",
                    flags=" ".join(self.aside),
                )
            )
        if self.extra:
            self.notes.append(
                info(
                    "to_extra",
                    gettext_noop("These have no field and went to the extra arguments: %(words)s"),
                    field="command",
                    words=shlex.join(self.extra)[:300],
                )
            )
        spec = ServeSpec(
            model=self.model,
            served_names=tuple(self.names),
            values=self.values,
            gpus=gpus,
            environment=plain,
            secrets={**secrets, **self.secrets},
            extra_arguments=shlex.join(self.extra),
        )
        return Command(
            spec=spec,
            notes=self.notes,
            host=self.host,
            port=self.port,
            api_key=self.api_key or environment.get("VLLM_API_KEY", ""),
        )
