"""The catalogue of flags as a page: what a version has, and what became of the others."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from engines.flag_lists import release_for
from engines.models import VllmFlags
from engines.views.profiles.checked import default_words, source_of
from engines.vllm import catalog, succession
from engines.vllm.defaults import default_of
from engines.vllm.meanings import meaning_of
from engines.vllm.notes import gettext_noop
from engines.vllm.releases import Flag, Release
from engines.vllm.versions import version_key
from kvadmin.views.base import PermissionView, search_text

_KINDS = {
    "bool": gettext_noop("switch"),
    "int": gettext_noop("whole number"),
    "int_human": gettext_noop("whole number, also 32k"),
    "int_human_or_auto": gettext_noop("whole number, also 32k, or auto"),
    "float": gettext_noop("number"),
    "str": gettext_noop("text"),
    "choice": gettext_noop("one of"),
    "json": gettext_noop("JSON"),
    "list": gettext_noop("several values"),
    "kv_list": gettext_noop("name=value"),
}


@dataclass(frozen=True)
class Entry:
    """One flag; ``here`` is False for one that the version does not have."""

    name: str
    aliases: str
    kind: str
    choices: str
    default: str
    since: str
    state: str
    tone: str
    meaning: str
    here: bool


class FlagList(PermissionView):
    """``?version=``, ``?q=`` part of a name or meaning, ``?show=gone`` those that this version lacks."""

    permission = "profile.view"

    def get(self, request: HttpRequest) -> HttpResponse:
        versions = sorted(
            {*catalog.versions(), *VllmFlags.objects.values_list("version", flat=True)},
            key=version_key,
            reverse=True,
        )
        version = request.GET.get("version", "")
        release = release_for(version if version in versions else versions[0])
        text = search_text(request)
        gone = request.GET.get("show") == "gone"
        names = sorted(catalog.all_flags().keys() - release.flags.keys()) if gone else sorted(release.flags)
        entries = [entry_of(name, release) for name in names]
        if text:
            sought = text.lower()
            entries = [one for one in entries if sought in f"{one.name} {one.aliases} {one.meaning}".lower()]
        context = {
            "entries": entries,
            "release": release,
            "versions": versions,
            "source": source_of(release),
            "text": text,
            "gone": gone,
        }
        return render(request, "engines/profiles/flags.html", context)


def entry_of(name: str, release: Release) -> Entry:
    flag: Flag | None = release.flags.get(name)
    facts = catalog.all_flags().get(name)
    state, tone = _state(name, flag, release)
    kind = flag.kind if flag is not None else facts.kind if facts is not None else "str"
    meaning = meaning_of(name)
    return Entry(
        name=name,
        aliases=", ".join([*flag.aliases, *flag.negations]) if flag is not None else "",
        kind=_(_KINDS.get(kind, kind)),
        choices=", ".join(map(str, flag.choices)) if flag is not None else "",
        default=default_words(default_of(name, release)) if flag is not None else "",
        since=facts.first_seen if facts is not None else release.version,
        state=state,
        tone=tone,
        meaning=_(meaning) if meaning else "",
        here=flag is not None,
    )


def _state(name: str, flag: Flag | None, release: Release) -> tuple[str, str]:
    facts = catalog.all_flags().get(name)
    new = succession.successor(name)
    if flag is None and facts is not None:
        if not release.at_least(facts.first_seen):
            return _("from %(version)s") % {"version": facts.first_seen}, "off"
        said = _("gone, last in %(version)s") % {"version": facts.last_seen}
    elif flag is not None and flag.deprecated:
        said = _("deprecated")
    elif facts is not None and facts.last_seen != catalog.newest_release():
        said = _("gone after %(version)s") % {"version": facts.last_seen}
    else:
        return "", ""
    return (_("%(state)s; now %(new)s") % {"state": said, "new": new} if new else said), "warn"
