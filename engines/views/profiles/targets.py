"""Where a profile is to run: the installed vLLMs that the form checks it against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from engines.flag_lists import release_for
from engines.model_shapes import shape_of
from engines.models import Host, Profile, VllmEnvironment
from engines.vllm import catalog
from engines.vllm.target import Card, Target
from engines.vllm.versions import version_key

#: installed vLLMs on offer, and how many are checked unless somebody asks for others
_OFFERED = 60
_CHECKED = 4


@dataclass(frozen=True)
class Option:
    value: str
    label: str
    checked: bool


@dataclass(frozen=True)
class Targets:
    """``options`` are the installed vLLMs; ``version`` is a release of the catalogue asked for beside them,
    "" for none. ``chosen`` are those that count, never none."""

    options: list[Option]
    version: str
    chosen: list[Target]

    @property
    def versions(self) -> list[str]:
        """Releases that can be asked for, newest first."""
        return list(reversed(catalog.versions()))

    @property
    def several(self) -> bool:
        return len(self.chosen) > 1


def targets_for(
    user: Any, *, model: str, profile: Profile | None, asked: Sequence[str] | None, version: str = ""
) -> Targets:
    """The vLLMs to check a profile against. ``asked`` are values of options; None is the usual choice: where
    the profile's engines run, else the newest of each host. Without any the newest release stands in."""
    environments = _environments(user)
    usual = _usual(environments, profile) if asked is None else set(asked)
    options = [
        Option(str(one.pk), f"{one.host.name} · vLLM {one.version}", str(one.pk) in usual)
        for one in environments
    ]
    version = version if version in catalog.versions() else ""
    chosen = [target_of(one, model) for one in environments if str(one.pk) in usual]
    if version or not chosen:
        release = release_for(version)
        chosen.append(Target(_("any host"), release, shape=shape_of(model, None)))
    return Targets(options, version, chosen)


def target_of(environment: VllmEnvironment, model: str) -> Target:
    host = environment.host
    return Target(
        host.name,
        release_for(environment.version),
        cards_of(host),
        (host.facts.get("memory") or {}).get("total_bytes"),
        shape_of(model, host),
    )


def cards_of(host: Host) -> tuple[Card, ...] | None:
    """The host's GPUs as the last probe saw them; None before the first one."""
    if host.facts_at is None and "gpus" not in host.facts:
        return None
    return tuple(
        Card(
            str(gpu.get("index", "")),
            str(gpu.get("name", "")),
            str(gpu.get("uuid", "")),
            gpu.get("memory_total_mib"),
        )
        for gpu in host.facts.get("gpus") or ()
    )


def _environments(user: Any) -> list[VllmEnvironment]:
    """Usable ones, one of each version on a host."""
    if not user.may("host.view"):
        return []
    rows = VllmEnvironment.objects.filter(usable=True).select_related("host").order_by("host__name", "pk")
    found: dict[tuple[int, str], VllmEnvironment] = {}
    for row in rows[: 4 * _OFFERED]:
        found.setdefault((row.host_id, row.version), row)
    return sorted(
        found.values(), key=lambda row: (row.host.name, tuple(-part for part in _numbers(row.version)))
    )[:_OFFERED]


def _numbers(version: str) -> tuple[int, ...]:
    return version_key(version)[0]


def _usual(environments: list[VllmEnvironment], profile: Profile | None) -> set[str]:
    if profile is not None:
        pairs = set(
            VllmEnvironment.objects.filter(engines__revision__profile=profile).values_list(
                "host_id", "version"
            )
        )
        used = [str(row.pk) for row in environments if (row.host_id, row.version) in pairs]
        if used:
            return set(used)
    newest: dict[int, str] = {}
    for row in environments:
        newest.setdefault(row.host_id, str(row.pk))
    return set(list(newest.values())[:_CHECKED])
