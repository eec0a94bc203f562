"""What a person has typed into the profile form: texts, kept as they are until they can be saved."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from engines.actions.save_profile import SaveProfile
from engines.models import Profile, Revision
from engines.vllm.exported import Exported
from engines.vllm.fields import fields, value_text
from engines.vllm.masking import MASK
from engines.vllm.notes import Note, error, gettext_noop
from engines.vllm.reading import Command
from engines.vllm.validate import Reading, read_spec
from kvadmin.actions import Actor
from kvadmin.numbers import whole_number

_TEXTS = ("name", "description", "note", "model", "served_names", "gpus", "extra_arguments")


@dataclass
class Variable:
    """One row of the environment. ``kept``: a secret whose stored value stays unless another is typed."""

    name: str = ""
    value: str = ""
    secret: bool = False
    kept: bool = False


@dataclass
class Draft:
    """``based_on`` is the number of the newest revision that the person knows, ``shown`` of the one that the
    form began with; ``secrets_from`` the id of the revision
    whose stored secrets stay where no new value is typed (None: the profile's newest)."""

    name: str = ""
    description: str = ""
    note: str = ""
    model: str = ""
    served_names: str = ""
    gpus: str = ""
    extra_arguments: str = ""
    values: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    based_on: int | None = None
    shown: int | None = None
    secrets_from: int | None = None

    @classmethod
    def from_post(cls, post: QueryDict) -> Draft:
        draft = cls(**{key: post.get(key, "") for key in _TEXTS})
        draft.values = {key: post.get(key, "") for key in fields()}
        names, typed = post.getlist("variable_name"), post.getlist("variable_value")
        kinds, kept = post.getlist("variable_kind"), post.getlist("variable_kept")
        for position, name in enumerate(names):
            value = typed[position] if position < len(typed) else ""
            secret = position < len(kinds) and kinds[position] == "secret"
            stays = position < len(kept) and kept[position] == "yes"
            if name.strip() or value:
                draft.variables.append(Variable(name.strip(), value, secret, stays))
        draft.based_on = whole_number(post.get("based_on_now") or post.get("based_on"))
        draft.shown = whole_number(post.get("based_on"))
        draft.secrets_from = whole_number(post.get("secrets_from"))
        return draft

    @classmethod
    def from_revision(cls, revision: Revision | None, profile: Profile | None = None) -> Draft:
        """A draft that says what the revision says; of the profile itself only with ``profile``."""
        draft = cls()
        if profile is not None:
            draft.name, draft.description = profile.name, profile.description
        if revision is None:
            return draft
        draft.model = revision.model
        draft.served_names = ", ".join(revision.served_names)
        draft.values = {key: value_text(value) for key, value in revision.values.items()}
        draft.gpus = revision.gpus
        draft.extra_arguments = revision.extra_arguments
        draft.variables = [Variable(name, value) for name, value in revision.environment.items()]
        draft.variables += [Variable(name, "", True, True) for name in revision.readable_secrets]
        return draft

    @classmethod
    def from_command(cls, command: Command) -> Draft:
        """What a pasted command says. Values of secrets are left out: no page shows them."""
        spec = command.spec
        return cls(
            name=spec.served_names[0]
            if spec.served_names
            else spec.model.rstrip("/").rsplit("/", 1)[-1].lower(),
            model=spec.model,
            served_names=", ".join(spec.served_names),
            values={key: value_text(value) for key, value in spec.values.items()},
            gpus=spec.gpus,
            extra_arguments=spec.extra_arguments,
            variables=[
                *(Variable(name, value) for name, value in spec.environment.items()),
                *(Variable(name, "", True) for name in spec.secrets),
            ],
        )

    @classmethod
    def from_exported(cls, found: Exported) -> Draft:
        """What an exported revision says, with its secrets to be entered again."""
        draft = cls.from_command(Command(spec=found.spec))
        draft.name, draft.description = found.name or draft.name, found.description
        return draft

    @property
    def names(self) -> list[str]:
        return [name for name in re.split(r"[\s,，、]+", self.served_names) if name]

    @property
    def environment(self) -> dict[str, str]:
        return {row.name: row.value for row in self.variables if not row.secret}

    @property
    def secrets(self) -> dict[str, str | None]:
        return {row.name: row.value or None for row in self.variables if row.secret}

    def problems(self) -> list[Note]:
        """What only the rows as typed can show."""
        found: list[Note] = []
        names = [row.name for row in self.variables]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            found.append(
                error(
                    "variable_twice",
                    gettext_noop("%(name)s stands there twice."),
                    remedy=gettext_noop("Keep one."),
                    field="environment",
                    name=name[:80],
                )
            )
        for row in self.variables:
            if row.kept and not row.secret and not row.value:
                found.append(
                    error(
                        "secret_to_plain",
                        gettext_noop("%(name)s was secret, so its value cannot be shown."),
                        remedy=gettext_noop("Type the value, or leave the variable secret."),
                        field="environment",
                        name=row.name[:80],
                    )
                )
        return found

    def reading(self) -> Reading:
        """The draft read without saving it; a secret that is kept has a mask for a value."""
        reading = read_spec(
            model=self.model,
            served_names=self.names,
            values=self.values,
            gpus=self.gpus,
            environment=self.environment,
            secrets={name: value or MASK for name, value in self.secrets.items()},
            extra_arguments=self.extra_arguments,
        )
        seen = {(note.code, note.text()) for note in reading.notes}
        more = [note for note in self.problems() if (note.code, note.text()) not in seen]
        return Reading(reading.spec, (*reading.notes, *more))

    def action(self, actor: Actor, profile: Profile | None) -> SaveProfile:
        source = (
            Revision.objects.filter(pk=self.secrets_from).first() if self.secrets_from is not None else None
        )
        given: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "note": self.note,
            "model": self.model,
            "served_names": self.names,
            "values": self.values,
            "gpus": self.gpus,
            "environment": self.environment,
            "secrets": self.secrets,
            "extra_arguments": self.extra_arguments,
            "based_on": self.based_on,
            "shown": self.shown,
        }
        return SaveProfile(actor, profile=profile, secrets_from=source, **given)
