"""Create a profile, or save its next revision."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from engines.models import Profile, Revision
from engines.vllm.command import masked_extra
from engines.vllm.fields import is_surrogate
from engines.vllm.masking import mask_environment
from engines.vllm.notes import Note
from engines.vllm.spec import ServeSpec
from engines.vllm.validate import Reading, read_spec
from kvadmin.actions import Action, Conflict, Invalid


@dataclass
class SaveProfile(Action[Profile]):
    """Save a profile as it should be from now on; returns the Profile, whose ``latest`` it is.

    ``values`` may hold texts as typed in a form or JSON values. In ``secrets`` a value of None keeps the
    one stored in ``secrets_from``; by default that of the newest revision, or, if somebody took it away
    meanwhile, of the revision ``shown`` (a number) that the person began with. ``based_on`` is the number of
    the revision that the person saw: Conflict ``revision_conflict`` if there is a newer one. A save that
    changes nothing makes no revision: ``revision_made`` says which it was.
    """

    verb = "profile.save"
    permission = "profile.change"

    name: str
    model: str
    profile: Profile | None = None
    description: str = ""
    served_names: Sequence[str] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    gpus: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    extra_arguments: str = ""
    note: str = ""
    based_on: int | None = None
    secrets_from: Revision | None = None
    shown: int | None = None

    reading: Reading = field(init=False, repr=False)
    revision_made: bool = field(default=False, init=False)

    def subject(self) -> Profile | None:
        return self.profile

    def check(self) -> None:
        errors: dict[str, list[str]] = {}
        self.name = _storable(self.name)
        self.description = _storable(self.description)
        self.note = _storable(self.note)
        if not self.name:
            errors["name"] = [_("A profile needs a name, for example qwen3-8b-v1.")]
        elif len(self.name) > 100:
            errors["name"] = [_("The name is longer than 100 characters.")]
        elif self._others().exists():
            errors["name"] = [_("Another profile has this name.")]
        if len(self.note) > 300:
            errors["note"] = [_("The note is longer than 300 characters.")]
        if len(self.model) > 500:
            errors["model"] = [_("The model is longer than 500 characters.")]
        if len(self.gpus) > 100:
            errors["gpus"] = [_("The list of GPUs is longer than 100 characters.")]
        secrets = self._secrets(errors)
        self.reading = read_spec(
            model=self.model,
            served_names=self.served_names,
            values=self.values,
            gpus=self.gpus,
            environment=self.environment,
            secrets=secrets,
            extra_arguments=self.extra_arguments,
        )
        for problem in self.reading.errors:
            errors.setdefault(problem.field, []).append(problem.text(_))
        if errors:
            raise Invalid(
                _("The profile was not saved."),
                remedy=_("Mend the fields that are marked."),
                errors=errors,
            )
        if self.profile is not None and self.profile.archived_at is not None:
            raise Conflict(
                _("This profile is archived."),
                code="profile_archived",
                remedy=_("Bring it back first, or copy it."),
            )

    def _others(self) -> Any:
        others = Profile.objects.filter(name__iexact=self.name)
        return others.exclude(pk=self.profile.pk) if self.profile is not None else others

    def _secrets(self, errors: dict[str, list[str]]) -> dict[str, str]:
        """The secrets to store: new values, and for None the stored ones."""
        stored = self._stored()
        secrets: dict[str, str] = {}
        for name, value in self.secrets.items():
            if value is None and name not in stored:
                errors.setdefault("environment", []).append(
                    _("%(name)s has no stored value. Enter its value.") % {"name": name[:80]}
                )
            else:
                secrets[name] = stored[name] if value is None else value
        return secrets

    def _stored(self) -> dict[str, str]:
        if self.secrets_from is not None:
            return self.secrets_from.readable_secrets
        if self.profile is None or self.profile.latest is None:
            return {}
        began = self.based_on if self.shown is None else self.shown
        first = self.profile.revisions.filter(number=began).first() if began is not None else None
        return {
            **(first.readable_secrets if first is not None else {}),
            **self.profile.latest.readable_secrets,
        }

    @property
    def warnings(self) -> list[Note]:
        """What is worth saying about a profile that can be saved."""
        return self.reading.others

    def execute(self) -> Profile:
        spec = self.reading.spec
        profile = self._profile()
        latest = profile.latest
        if latest is not None and self.based_on is not None and latest.number != self.based_on:
            raise Conflict(
                _("%(who)s saved revision %(number)d of this profile meanwhile.")
                % {"who": latest.author, "number": latest.number},
                code="revision_conflict",
                remedy=_("Compare the two, then save yours on top of it or leave it."),
            )
        old = latest.shown_spec if latest is not None else None
        facts = {"name": profile.name, "description": profile.description}
        self.revision_made = spec != old
        if self.revision_made:
            self._write(profile, spec, latest)
        renamed = self.profile is not None and facts != {"name": self.name, "description": self.description}
        if renamed:
            profile.name, profile.description = self.name, self.description
            self._save(profile, ["name", "description"])
        self.changed = self.revision_made or renamed
        before = {**facts, **audited(old)} if self.profile is not None else {}
        after = {"name": self.name, "description": self.description, **audited(spec)}
        if self.revision_made:
            before["revision"] = latest.number if latest is not None else None
            after["revision"] = latest.number + 1 if latest is not None else 1
        self.before = {key: value for key, value in before.items() if after.get(key) != value}
        self.after = {key: value for key, value in after.items() if before.get(key) != value}
        return profile

    def _profile(self) -> Profile:
        if self.profile is not None:
            return Profile.objects.select_for_update().get(pk=self.profile.pk)
        profile = Profile(name=self.name, description=self.description)
        self._save(profile, None)
        return profile

    def _save(self, profile: Profile, update_fields: list[str] | None) -> None:
        try:
            with transaction.atomic():
                profile.save(update_fields=update_fields)
        except IntegrityError:
            raise Invalid(_("Another profile has this name."), field="name") from None

    def _write(self, profile: Profile, spec: ServeSpec, latest: Revision | None) -> None:
        Revision.objects.create(
            profile=profile,
            number=latest.number + 1 if latest is not None else 1,
            model=spec.model,
            served_names=list(spec.served_names),
            values=dict(spec.values),
            gpus=spec.gpus,
            environment=dict(spec.environment),
            secret_environment=json.dumps(dict(spec.secrets)) if spec.secrets else "",
            extra_arguments=spec.extra_arguments,
            note=self.note,
            created_by=self.actor.user,
        )


def _storable(text: str) -> str:
    """Without what PostgreSQL cannot keep: NUL and halves of characters."""
    return "".join(letter for letter in text if letter != "\0" and not is_surrogate(letter)).strip()


def audited(spec: ServeSpec | None) -> dict[str, Any]:
    """A spec for the audit: secrets by name only, and nothing that looks like one."""
    if spec is None:
        return {}
    return {
        "model": spec.model,
        "served_names": list(spec.served_names),
        "values": dict(spec.values),
        "gpus": spec.gpus,
        "environment": mask_environment(dict(spec.environment)),
        "secret_names": sorted(spec.secrets),
        "extra_arguments": masked_extra(spec),
    }
