"""Search over everything a person may open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db.models import Q, QuerySet
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from kvadmin.models import User
from kvadmin.navigation import entries_for


@dataclass(frozen=True)
class Hit:
    label: str
    url: str
    note: str = ""


@dataclass(frozen=True)
class Group:
    label: str
    hits: list[Hit]


@dataclass(frozen=True)
class Source:
    """A kind of row that can be found: by which columns, behind which permission, at which page."""

    label: str
    model: str
    permission: str
    columns: tuple[str, ...]
    url_name: str
    key: str = "pk"
    related: tuple[str, ...] = ()


def sources() -> list[Source]:
    return [
        Source(
            _("Engines"),
            "engines.Engine",
            "engine.view",
            ("name", "host__name", "revision__model"),
            "engines:engine_detail",
            related=("host", "revision"),
        ),
        Source(_("Hosts"), "engines.Host", "host.view", ("name", "address"), "engines:host_detail"),
        Source(
            _("Profiles"),
            "engines.Profile",
            "profile.view",
            ("name", "revisions__model"),
            "engines:profile_detail",
        ),
        Source(
            _("Operations"),
            "engines.Operation",
            "operation.view",
            ("uuid__istartswith", "host__name", "engine__name"),
            "engines:operation_detail",
            key="uuid",
            related=("host", "engine"),
        ),
        Source(
            _("Routes"),
            "routes.Route",
            "route.view",
            ("name", "aliases", "description"),
            "routes:route_detail",
        ),
        Source(_("Teams"), "kvadmin.Team", "gateway.use", ("name",), "routes:team_detail"),
        Source(
            _("Businesses"),
            "routes.Business",
            "gateway.use",
            ("name", "description"),
            "routes:team_detail",
            key="team_id",
            related=("team",),
        ),
        Source(
            _("Keys"),
            "routes.Key",
            "gateway.use",
            ("name", "public_id__startswith", "business__name"),
            "routes:key_detail",
            related=("business__team",),
        ),
        Source(
            _("Users"),
            "kvadmin.User",
            "user.view",
            ("username", "first_name", "last_name", "email"),
            "kvadmin:user_detail",
        ),
    ]


def _note(row: Any) -> str:
    kind = row._meta.model_name
    if kind == "engine":
        model = row.revision.model if row.revision else ", ".join(row.served_names)
        return f"{row.host.name} · {model}"
    if kind == "host":
        return str(row.address)
    if kind == "operation":
        return f"{row.get_state_display()} · {row.engine or row.host}"
    if kind == "key":
        return f"{row.business.team} · {row.business} · {row.state.label}"
    if kind == "business":
        return str(row.team)
    if kind == "route":
        return ", ".join(row.aliases)
    if kind == "user":
        return str(row.get_role_display())
    return ""


def _label(row: Any) -> str:
    return str(row.get_kind_display()) if row._meta.model_name == "operation" else str(row)


def _rows(source: Source, user: User, text: str) -> QuerySet[Any]:
    rows = apps.get_model(source.model)._default_manager.all()
    if hasattr(rows, "visible_to"):
        rows = rows.visible_to(user)
    condition = Q()
    for column in source.columns:
        lookup = column if column.endswith("with") else f"{column}__icontains"
        condition |= Q(**{lookup: text})
    return rows.filter(condition).select_related(*source.related).distinct()


def pages_for(user: User, text: str) -> list[Hit]:
    """The pages whose name has the text, and the actions that start on a page of their own."""
    wanted = text.casefold()
    found = [(str(entry.label), url) for entry, url in entries_for(user)]
    found.append((_("Account"), reverse("kvadmin:account")))
    for label, url_name, permission in (
        (_("New engine"), "engines:engine_add", "engine.change"),
        (_("Add host"), "engines:host_add", "host.change"),
        (_("New profile"), "engines:profile_add", "profile.change"),
        (_("New route"), "routes:route_add", "route.change"),
        (_("New key"), "routes:key_add", "key.change"),
        (_("New team"), "routes:team_add", "team.create"),
        (_("New user"), "kvadmin:user_add", "user.change"),
    ):
        if not user.may(permission):
            continue
        try:
            found.append((label, reverse(url_name)))
        except NoReverseMatch:
            continue
    return [Hit(label, url) for label, url in found if wanted in label.casefold()]


def find(user: User, text: str, *, limit: int = 6) -> list[Group]:
    """Groups of hits for the text, at most ``limit`` of a kind; without text, pages and actions."""
    text = text.strip()[:100]
    groups = []
    for source in sources() if text else []:
        if not user.may(source.permission):
            continue
        hits = list(_hits(source, _rows(source, user, text)[:limit]))
        if hits:
            groups.append(Group(source.label, hits))
    pages = pages_for(user, text)
    if pages:
        groups.append(Group(_("Pages"), pages))
    return groups


def _hits(source: Source, rows: Iterable[Any]) -> Iterable[Hit]:
    for row in rows:
        try:
            url = reverse(source.url_name, args=[getattr(row, source.key)])
        except NoReverseMatch:
            return
        yield Hit(_label(row), url, _note(row))
