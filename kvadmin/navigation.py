"""The sidebar: what it lists, for whom, and which entry the present page belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from kvadmin.models import User


@dataclass(frozen=True)
class Entry:
    label: Any
    url_name: str
    permission: str


@dataclass(frozen=True)
class Link:
    label: Any
    url: str
    current: bool
    count: int = 0


SECTIONS: tuple[tuple[Any, tuple[Entry, ...]], ...] = (
    (
        _("Run"),
        (
            Entry(_("Fleet"), "engines:fleet", "fleet.view"),
            Entry(_("Engines"), "engines:engine_list", "engine.view"),
            Entry(_("Hosts"), "engines:host_list", "host.view"),
            Entry(_("Profiles"), "engines:profile_list", "profile.view"),
            Entry(_("Operations"), "engines:operation_list", "operation.view"),
        ),
    ),
    (
        _("Serve"),
        (
            Entry(_("Routes"), "routes:route_list", "route.view"),
            Entry(_("Teams"), "routes:team_list", "gateway.use"),
            Entry(_("Keys"), "routes:key_list", "gateway.use"),
            Entry(_("Models"), "routes:model_list", "gateway.use"),
        ),
    ),
    (
        _("Watch"),
        (
            Entry(_("Audit"), "kvadmin:audit_list", "audit.view"),
            Entry(_("Users"), "kvadmin:user_list", "user.view"),
            Entry(_("System"), "kvadmin:system", "system.view"),
        ),
    ),
)


def resolve(entry: Entry) -> str | None:
    """The entry's address; None while no page has that name."""
    try:
        return reverse(entry.url_name)
    except NoReverseMatch:
        return None


def entries_for(user: User) -> Iterable[tuple[Entry, str]]:
    """Every entry the user may open, with its address."""
    for _label, entries in SECTIONS:
        for entry in entries:
            url = resolve(entry)
            if url is not None and user.may(entry.permission):
                yield entry, url


def sections_for(
    user: User, path: str, counts: Mapping[str, int] | None = None
) -> list[tuple[Any, list[Link]]]:
    """The sidebar for a user on a page; sections without an entry are left out. ``counts`` says, by URL
    name, how many things behind an entry need a look.
    """
    counts = counts or {}
    allowed = dict(entries_for(user))
    urls = [url for url in allowed.values() if (path == url if url == "/" else path.startswith(url))]
    current = max(urls, key=len, default=None)
    found = []
    for label, entries in SECTIONS:
        links = [
            Link(entry.label, allowed[entry], allowed[entry] == current, counts.get(entry.url_name, 0))
            for entry in entries
            if entry in allowed
        ]
        if links:
            found.append((label, links))
    return found
