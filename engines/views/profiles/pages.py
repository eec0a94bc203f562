"""Profiles: list, detail, comparison, export, archive."""

from __future__ import annotations

import re

from django.contrib import messages
from django.db.models import Count, Exists, OuterRef, Q
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from engines.actions.archive_profile import ArchiveProfile
from engines.actions.restore_profile import RestoreProfile
from engines.models import Engine, Profile, Revision
from engines.views.profiles.checked import check_against
from engines.views.profiles.present import Past, changes, command_text, compare, rows_of, said
from engines.views.profiles.targets import targets_for
from engines.vllm.command import display_command
from engines.vllm.exported import exported
from engines.vllm.validate import check_spec
from kvadmin.crypto import is_readable
from kvadmin.numbers import whole_number
from kvadmin.views.base import PermissionView, actor_of, attempt, keyset_page, search_text

_SHOWN = 20


def profile_or_404(request: HttpRequest, pk: int) -> Profile:
    return get_object_or_404(Profile.objects.visible_to(request.user), pk=pk)


def revision_or_404(profile: Profile, number: int | None) -> Revision:
    revisions = profile.revisions.select_related("created_by")
    found = revisions.first() if number is None else revisions.filter(number=number).first()
    if found is None:
        raise Http404
    return found


class ProfileList(PermissionView):
    """``?q=`` searches names and models, ``?archived=1`` shows the archived ones instead."""

    permission = "profile.view"

    def get(self, request: HttpRequest) -> HttpResponse:
        text = search_text(request)
        archived = request.GET.get("archived") == "1"
        profiles = Profile.objects.visible_to(request.user).filter(archived_at__isnull=not archived)
        if text:
            models = Revision.objects.filter(profile=OuterRef("pk"), model__icontains=text)
            profiles = profiles.filter(Q(name__icontains=text) | Exists(models))
        profiles = profiles.annotate(engine_count=Count("revisions__engines", distinct=True))
        page = keyset_page(profiles, request.GET, by="name")
        newest = (
            Revision.objects.filter(profile__in=page.rows)
            .select_related("created_by")
            .order_by("profile_id", "-number")
            .distinct("profile_id")
        )
        by_profile = {revision.profile_id: revision for revision in newest}
        rows = [(profile, by_profile.get(profile.pk)) for profile in page.rows]
        context = {"rows": rows, "page": page, "text": text, "archived": archived}
        return render(request, "engines/profiles/list.html", context)


class ProfileDetail(PermissionView):
    """The newest revision, or the one whose number is in the address."""

    permission = "profile.view"

    def get(self, request: HttpRequest, pk: int, number: int | None = None) -> HttpResponse:
        profile = profile_or_404(request, pk)
        revision = revision_or_404(profile, number)
        spec = revision.shown_spec
        if not is_readable(revision, "secret_environment"):
            messages.warning(request, _("The stored secret cannot be read: enter it again."))
        engines = list(
            Engine.objects.visible_to(request.user)
            .filter(revision__profile=profile)
            .select_related("host", "revision")
        )
        notes = said(note for note in check_spec(spec) if note.field)
        targets = targets_for(request.user, model=spec.model, profile=profile, asked=None)
        context = {
            "profile": profile,
            "revision": revision,
            "newest": profile.latest,
            "rows": rows_of(spec),
            "command": command_text(spec),
            "checked": check_against(spec, targets.chosen),
            "notes": [note for found in notes.values() for note in found if note.tone != "info"],
            "engines": engines,
            "past": self._past(profile, engines, everything=request.GET.get("revisions") == "all"),
            "count": profile.revisions.count(),
            "shown": _SHOWN,
        }
        return render(request, "engines/profiles/detail.html", context)

    def _past(self, profile: Profile, engines: list[Engine], *, everything: bool) -> list[Past]:
        revisions = profile.revisions.select_related("created_by")
        found = list(revisions if everything else revisions[: _SHOWN + 1])
        past = []
        for position, revision in enumerate(found):
            older = found[position + 1] if position + 1 < len(found) else None
            past.append(
                Past(
                    revision,
                    changes(older.shown_spec, revision.shown_spec) if older is not None else [],
                    [engine for engine in engines if engine.revision_id == revision.pk],
                    first=revision.number == 1,
                )
            )
        return past if everything else past[:_SHOWN]


class ProfileCompare(PermissionView):
    """Two revisions side by side: ``?left=3&right=5`` (by default the newest and the one before)."""

    permission = "profile.view"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        profile = profile_or_404(request, pk)
        numbers = list(profile.revisions.values_list("number", flat=True))
        if not numbers:
            raise Http404
        right = whole_number(request.GET.get("right")) or numbers[0]
        left = whole_number(request.GET.get("left")) or max((n for n in numbers if n < right), default=right)
        one, other = revision_or_404(profile, left), revision_or_404(profile, right)
        pairs = compare(one.shown_spec, other.shown_spec)
        everything = request.GET.get("show") == "all"
        context = {
            "profile": profile,
            "left": one,
            "right": other,
            "numbers": numbers,
            "pairs": pairs if everything else [pair for pair in pairs if pair.differs],
            "equal": sum(1 for pair in pairs if not pair.differs),
            "everything": everything,
            "left_command": command_text(one.shown_spec),
            "right_command": command_text(other.shown_spec),
        }
        return render(request, "engines/profiles/compare.html", context)


class ProfileExport(PermissionView):
    """A revision as a file: ``sh`` (the command, secrets masked) or ``json``."""

    permission = "profile.view"

    def get(self, request: HttpRequest, pk: int, number: int, form: str) -> HttpResponse:
        profile = profile_or_404(request, pk)
        revision = revision_or_404(profile, number)
        name = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', profile.name).strip('-.') or 'profile'}-r{number}.{form}"
        if form == "json":
            response: HttpResponse = JsonResponse(
                exported(
                    revision.shown_spec,
                    name=profile.name,
                    description=profile.description,
                    revision=revision.number,
                ),
                json_dumps_params={"indent": 2},
            )
        else:
            response = HttpResponse(
                f"{display_command(revision.shown_spec)}\n", content_type="text/x-shellscript; charset=utf-8"
            )
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        return response


class ProfileArchive(PermissionView):
    permission = "profile.change"

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        profile = profile_or_404(request, pk)
        attempt(request, ArchiveProfile(actor_of(request), profile), _("The profile is archived."))
        return redirect("engines:profile_detail", pk)


class ProfileRestore(PermissionView):
    permission = "profile.change"

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        profile = profile_or_404(request, pk)
        attempt(request, RestoreProfile(actor_of(request), profile), _("The profile is back."))
        return redirect("engines:profile_detail", pk)
