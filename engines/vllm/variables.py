"""The environment of a profile: names and values, and what belongs elsewhere."""

from __future__ import annotations

import re

from engines.vllm.masking import find_secret, is_secret_name
from engines.vllm.notes import Note, error, gettext_noop, warning
from engines.vllm.spec import ServeSpec

#: set by kvadmin for every start
RESERVED_VARIABLES = {
    "VLLM_API_KEY": gettext_noop("Leave it out: each engine gets a key of its own."),
    "KVADMIN_START": gettext_noop("Leave it out: kvadmin knows its processes by it."),
    "SPT_NOENV": gettext_noop("Leave it out: kvadmin sets it so that processes stay recognisable."),
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def check_environment(spec: ServeSpec) -> list[Note]:
    notes: list[Note] = []
    for name, value in [*spec.environment.items(), *spec.secrets.items()]:
        notes += _check_variable(spec, name, value)
    for name in spec.environment.keys() & spec.secrets.keys():
        notes.append(
            error(
                "variable_twice",
                gettext_noop("%(name)s stands there twice."),
                remedy=gettext_noop("Keep one."),
                field="environment",
                name=name,
            )
        )
    return notes


def _check_variable(spec: ServeSpec, name: str, value: str) -> list[Note]:
    if not _VARIABLE.fullmatch(name):
        return [
            error(
                "variable_name",
                gettext_noop("“%(name)s” cannot be a variable's name."),
                remedy=gettext_noop(
                    "Letters, digits and underscores, no digit in front: VLLM_LOGGING_LEVEL."
                ),
                field="environment",
                name=name[:80],
            )
        ]
    if name in RESERVED_VARIABLES or name.startswith("KVADMIN_"):
        return [
            error(
                "variable_reserved",
                gettext_noop("%(name)s is set by kvadmin."),
                remedy=RESERVED_VARIABLES.get(name, RESERVED_VARIABLES["KVADMIN_START"]),
                field="environment",
                name=name,
            )
        ]
    if re.search(r"[\x00-\x08\n\r\x0b-\x1f\ud800-\udfff]", value):
        return [
            error(
                "variable_value",
                gettext_noop("The value of %(name)s holds a line break or a control character."),
                remedy=gettext_noop("Write it on one line."),
                field="environment",
                name=name,
            )
        ]
    if name == "CUDA_VISIBLE_DEVICES" and spec.gpus:
        return [
            error(
                "variable_gpus",
                gettext_noop("CUDA_VISIBLE_DEVICES follows from the GPUs to use."),
                remedy=gettext_noop("Keep one of the two."),
                field="environment",
                name=name,
            )
        ]
    return _warn_variable(spec, name, value)


def _warn_variable(spec: ServeSpec, name: str, value: str) -> list[Note]:
    warnings = {
        "CUDA_VISIBLE_DEVICES": gettext_noop("The field for GPUs does the same, and checks their number."),
        "LD_PRELOAD": gettext_noop("LD_PRELOAD loads other code into every process of the engine."),
        "PROMETHEUS_MULTIPROC_DIR": gettext_noop(
            "A folder for metrics of one's own has to be emptied before each start, or old values stay."
        ),
        "VLLM_PORT": gettext_noop("VLLM_PORT is for vLLM's inner connections, not for callers."),
    }
    notes = [warning("variable_doubtful", warnings[name], field="environment")] if name in warnings else []
    if name in spec.environment and (is_secret_name(name) or find_secret(value)):
        notes.append(
            error(
                "variable_open_secret",
                gettext_noop("%(name)s looks like a secret and would be stored as plain text."),
                remedy=gettext_noop("Mark it as secret: its value is then encrypted and never shown."),
                field="environment",
                name=name,
            )
        )
    return notes
