"""Before the vLLM of a host is replaced: what changes for each of its engines."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext as _

from engines.flag_lists import release_for
from engines.model_shapes import shape_of
from engines.models import Engine, Host, VllmEnvironment
from engines.views.profiles.checked import Finding, default_words, findings_of, source_of
from engines.views.profiles.targets import cards_of
from engines.vllm import catalog
from engines.vllm.fields import fields_by_flag
from engines.vllm.masking import mask_arguments
from engines.vllm.releases import Release
from engines.vllm.spec import ServeSpec
from engines.vllm.target import Target
from engines.vllm.upgrade import Upgrade, upgrade
from engines.vllm.versions import public, version_key
from kvadmin.views.base import PermissionView


@dataclass(frozen=True)
class Side:
    """One row of a difference: the flag, what each version gets of it, and why."""

    flag: str
    label: str
    before: str
    after: str
    why: str = ""


@dataclass(frozen=True)
class Outlook:
    """What becomes of one engine. ``present`` is the version it has now, "" when nobody knows."""

    engine: Engine
    present: str
    tone: str
    word: str
    findings: list[Finding]
    changes: list[Side]
    moves: list[Side]


class UpgradeView(PermissionView):
    """``?to=`` is the version to look ahead to: one installed on the host, or one of the catalogue."""

    permission = "host.view"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        host = get_object_or_404(Host.objects.visible_to(request.user), pk=pk)
        engines = list(
            Engine.objects.visible_to(request.user)
            .filter(host=host)
            .select_related("host", "environment", "revision__profile", "current_start")
            .order_by("name")
        )
        versions = versions_of(host)
        wanted = request.GET.get("to", "")
        version = wanted if wanted in versions else versions[0]
        release = release_for(version)
        context = {
            "host": host,
            "versions": versions,
            "version": version,
            "installed": {row.version for row in host.environments.filter(usable=True)},
            "source": source_of(release),
            "outlooks": [outlook(engine, release) for engine in engines if engine.revision is not None],
            "without": [engine for engine in engines if engine.revision is None],
        }
        return render(request, "engines/hosts/upgrade.html", context)


def versions_of(host: Host) -> list[str]:
    """The catalogue's and what the host has, newest first."""
    installed = [row.version for row in host.environments.filter(usable=True)]
    return sorted(
        {*catalog.versions(), *installed}, key=lambda one: (version_key(public(one)), one), reverse=True
    )


def outlook(engine: Engine, release: Release) -> Outlook:
    spec = engine.revision.shown_spec
    present = _present(engine.environment, engine)
    host = engine.host
    memory = (host.facts.get("memory") or {}).get("total_bytes")

    def on(here: Release) -> Target:
        return Target(host.name, here, cards_of(host), memory, shape_of(spec.model, host))

    found = upgrade(spec, on(release_for(present)), on(release))
    tone, word = _word(found)
    return Outlook(
        engine,
        present,
        tone,
        word,
        [one for one in findings_of([found.new]) if one.text in {note.text(_) for note in found.notes}],
        [
            Side(
                change.flag,
                "",
                _text(change.before, spec),
                _text(change.after, spec),
                change.note.text(_) if change.note is not None else "",
            )
            for change in found.changes
        ],
        [
            Side(move.flag, _label(move.flag), default_words(move.before), default_words(move.after))
            for move in found.moves
        ],
    )


def _present(environment: VllmEnvironment | None, engine: Engine) -> str:
    if environment is not None:
        return environment.version
    return engine.current_start.vllm_version if engine.current_start is not None else ""


def _word(found: Upgrade) -> tuple[str, str]:
    if not found.new.starts:
        return "bad", _("Does not start")
    if found.quiet:
        return "ok", _("No change")
    return ("warn", _("Starts, with changes")) if found.changes or found.notes else ("ok", _("Starts"))


def _text(words: Iterable[str], spec: ServeSpec) -> str:
    return shlex.join(mask_arguments(list(words), spec.secrets.values()))


def _label(flag: str) -> str:
    definition = fields_by_flag().get(flag)
    return _(definition.label) if definition is not None else ""
