"""A profile's revision as JSON for other programs, and reading it back. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engines.vllm.command import masked_extra
from engines.vllm.fields import fields
from engines.vllm.masking import MASK, mask_environment
from engines.vllm.notes import Note, Unreadable, error, gettext_noop, warning
from engines.vllm.spec import ServeSpec

_TEXTS = ("profile", "description", "model", "gpus", "extra_arguments")
_KNOWN = {*_TEXTS, "revision", "served_names", "values", "environment", "secret_names"}


@dataclass(frozen=True)
class Exported:
    """What a file says. ``spec.secrets`` has the names of the secrets, with empty values."""

    name: str
    description: str
    spec: ServeSpec
    notes: list[Note] = field(default_factory=list)


def exported(spec: ServeSpec, *, name: str, description: str, revision: int) -> dict[str, Any]:
    """A revision as JSON values; secrets by name only."""
    return {
        "profile": name,
        "description": description,
        "revision": revision,
        "model": spec.model,
        "served_names": list(spec.served_names),
        "values": dict(spec.values),
        "gpus": spec.gpus,
        "environment": mask_environment(dict(spec.environment)),
        "secret_names": sorted(spec.secrets),
        "extra_arguments": masked_extra(spec),
    }


def read_exported(text: str) -> Exported:
    """Read what ``exported`` wrote, perhaps changed by hand; Unreadable if it is something else."""
    try:
        data = json.loads(text)
    except ValueError as problem:
        line = getattr(problem, "lineno", 1)
        raise Unreadable(
            error(
                "no_json",
                gettext_noop("This is no whole JSON: it breaks off or goes wrong at line %(line)d."),
                remedy=gettext_noop("Export the profile again, or mend the file there."),
                field="command",
                line=line,
            )
        ) from problem
    if not isinstance(data, dict) or not isinstance(data.get("model"), str):
        raise _unfit("model")
    for key in _TEXTS:
        if not isinstance(data.get(key, ""), str):
            raise _unfit(key)
    names, secrets = data.get("served_names", []), data.get("secret_names", [])
    for key, found in (("served_names", names), ("secret_names", secrets)):
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise _unfit(key)
    values, environment = data.get("values", {}), data.get("environment", {})
    if not isinstance(values, dict):
        raise _unfit("values")
    if not isinstance(environment, dict) or not all(isinstance(one, str) for one in environment.values()):
        raise _unfit("environment")
    spec = ServeSpec(
        model=data["model"],
        served_names=tuple(names),
        values={key: value for key, value in values.items() if key in fields()},
        gpus=data.get("gpus", ""),
        environment=environment,
        secrets=dict.fromkeys(secrets, ""),
        extra_arguments=data.get("extra_arguments", ""),
    )
    return Exported(data.get("profile", ""), data.get("description", ""), spec, _notes(data, values, spec))


def _unfit(key: str) -> Unreadable:
    return Unreadable(
        error(
            "no_profile",
            gettext_noop("This is not an exported profile: “%(key)s” is missing or of another kind."),
            remedy=gettext_noop("Use the file behind “JSON” on a profile's page."),
            field="command",
            key=key,
        )
    )


def _notes(data: Mapping[str, Any], values: Mapping[str, Any], spec: ServeSpec) -> list[Note]:
    notes = []
    left = [*sorted(data.keys() - _KNOWN), *sorted(values.keys() - fields().keys())]
    if left:
        notes.append(
            warning(
                "left_out",
                gettext_noop("Not known here, and left out: %(names)s."),
                names=", ".join(name[:80] for name in left[:20]),
            )
        )
    hidden = sorted(name for name, value in spec.environment.items() if MASK in value)
    if MASK in spec.extra_arguments:
        hidden.append("extra_arguments")
    if hidden:
        notes.append(
            warning(
                "masked",
                gettext_noop("The file hides values with %(mask)s: enter them again in %(names)s."),
                mask=MASK,
                names=", ".join(hidden),
            )
        )
    return notes
