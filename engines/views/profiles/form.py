"""Profiles: the form, its live preview, and reading a pasted command into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from engines.models import Engine, Profile
from engines.views.profiles.checked import check_against
from engines.views.profiles.draft import Draft, Variable
from engines.views.profiles.pages import profile_or_404, revision_or_404
from engines.views.profiles.planned import Asked, planned_for
from engines.views.profiles.present import (
    Said,
    changes,
    command_text,
    known_models,
    said,
    sections,
)
from engines.views.profiles.targets import targets_for
from engines.vllm.exported import read_exported
from engines.vllm.fields import fields
from engines.vllm.notes import Note, Unreadable
from engines.vllm.reading import read_text, read_words
from engines.vllm.spec import ServeSpec
from kvadmin.actions import ActionError, Conflict, Invalid
from kvadmin.numbers import whole_number
from kvadmin.views.base import PermissionView, actor_of, sentence_of

#: bytes read of a file that is to become a profile
_LARGEST_FILE = 1_000_000
#: inputs beside vLLM's own fields
_OTHERS = ("name", "description", "note", "model", "served_names", "gpus", "environment", "extra_arguments")


def form_context(
    request: HttpRequest,
    draft: Draft,
    notes: dict[str, list[Said]],
    *,
    spec: ServeSpec | None = None,
    profile: Profile | None = None,
    **more: Any,
) -> dict[str, Any]:
    """What form and preview show of a draft, checked against the vLLMs that were asked for."""
    spec = spec if spec is not None else draft.reading().spec
    asked = request.POST.getlist("target") if request.POST.get("targets_shown") else None
    targets = targets_for(
        request.user,
        model=spec.model,
        profile=profile,
        asked=asked,
        version=request.POST.get("target_version", ""),
    )
    checked = check_against(spec, targets.chosen) if spec.model else None
    labels = {key: _(field.label) for key, field in fields().items()} | {
        "name": _("Name"),
        "description": _("Description"),
        "note": _("What changed"),
        "model": _("Model"),
        "served_names": _("Served names"),
        "gpus": _("GPUs to use"),
        "environment": _("Environment"),
        "extra_arguments": _("Extra arguments"),
    }
    wrong = [
        (key if key in labels else "", labels.get(key, ""), note.text)
        for key, found in notes.items()
        for note in found
        if note.is_error
    ]
    return {
        "draft": draft,
        "field_groups": sections(draft, notes, targets.chosen[0].release),
        "notes": notes,
        "slots": [(key, notes.get(key, [])) for key in (*_OTHERS, *fields())],
        "wrong": wrong,
        "command": command_text(spec, targets.chosen[0].release),
        "targets": targets,
        "checked": checked,
        "planned": planned_for(spec, targets.chosen, profile, Asked.of(request.POST)) if spec.model else [],
        "profile": profile,
        "secret_names": [row.name for row in draft.variables if row.secret],
        "spare": [Variable()],
        **more,
    }


class ProfileForm(PermissionView):
    """Add a profile (also as a copy: ``?copy=<id>``) or edit one (``?revision=<number>`` starts from an
    older revision)."""

    permission = "profile.change"

    def get(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        profile = profile_or_404(request, pk) if pk is not None else None
        draft = self._draft(request, profile)
        notes = said(draft.reading().notes) if draft.model else {}
        return self._page(request, profile, draft, notes)

    def _draft(self, request: HttpRequest, profile: Profile | None) -> Draft:
        if profile is not None:
            newest = profile.latest
            number = whole_number(request.GET.get("revision"))
            shown = newest if number is None else revision_or_404(profile, number)
            draft = Draft.from_revision(shown, profile)
            draft.based_on = newest.number if newest is not None else None
            if shown is not None and shown != newest:
                draft.secrets_from = shown.pk
                draft.note = _("As in revision %(number)d") % {"number": shown.number}
            return draft
        copied = whole_number(request.GET.get("copy"))
        if copied is None:
            return Draft()
        source = profile_or_404(request, copied)
        draft = Draft.from_revision(source.latest)
        draft.name = _("%(name)s-copy") % {"name": source.name}
        draft.description = source.description
        draft.secrets_from = source.latest.pk if source.latest is not None else None
        return draft

    def _page(
        self,
        request: HttpRequest,
        profile: Profile | None,
        draft: Draft,
        notes: dict[str, list[Said]],
        *,
        status: int = 200,
        **more: Any,
    ) -> HttpResponse:
        models = known_models(request.user)
        context = form_context(request, draft, notes, profile=profile, models=models, **more)
        return render(request, "engines/profiles/form.html", context, status=status)

    def post(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        profile = profile_or_404(request, pk) if pk is not None else None
        draft = Draft.from_post(request.POST)
        action = draft.action(actor_of(request), profile)
        problems = draft.problems()
        try:
            if problems:
                # both the rows' problems and everything else at once
                action.authorize()
                action.check()
                raise Invalid(_("The profile was not saved."))
            saved = action.run()
        except ActionError as refused:
            return self._refused(request, profile, draft, refused, problems)
        if action.revision_made:
            number = saved.latest.number
            messages.success(request, _("Revision %(number)d is saved.") % {"number": number})
        elif action.changed:
            messages.success(request, _("Name and description are saved; there is no new revision."))
        else:
            messages.info(request, _("Nothing was changed, so there is no new revision."))
        target = reverse("engines:profile_detail", args=[saved.pk])
        if request.htmx:
            response = HttpResponse()
            response["HX-Redirect"] = target
            return response
        return redirect(target)

    def _refused(
        self,
        request: HttpRequest,
        profile: Profile | None,
        draft: Draft,
        refused: ActionError,
        problems: list[Note],
    ) -> HttpResponse:
        """The form with what is wrong. With htmx only the sentences go back: what was typed, secrets
        too, stays in the page as it is."""
        reading = draft.reading()
        notes = said(note for note in reading.notes if note.code != "model_missing")
        errors = refused.errors if isinstance(refused, Invalid) else {}
        for key, sentences in errors.items():
            known = {note.text for note in notes.get(key, ())}
            fresh = [Said(text, "bad") for text in sentences if text not in known]
            notes[key] = fresh + notes.get(key, [])
        if not errors and not problems:
            notes.setdefault("", []).insert(0, Said(sentence_of(refused), "bad"))
        more: dict[str, Any] = {"refused": True}
        if isinstance(refused, Conflict) and refused.code == "revision_conflict" and profile is not None:
            newest = revision_or_404(profile, None)
            spec = reading.spec
            # a secret that stays is no difference
            kept = {
                name: newest.readable_secrets.get(name, "")
                for name, value in draft.secrets.items()
                if value is None
            }
            mine = ServeSpec(**{**spec.__dict__, "secrets": {**spec.secrets, **kept}})
            more["conflict"] = {"newest": newest, "changes": changes(newest.shown_spec, mine)}
        if request.htmx:
            context = form_context(
                request, draft, notes, spec=reading.spec, profile=profile, oob=True, **more
            )
            response = render(request, "engines/profiles/preview.html", context, status=refused.status)
        else:
            lost = any(row.secret and row.value for row in draft.variables)
            response = self._page(
                request, profile, draft, notes, status=refused.status, secrets_lost=lost, **more
            )
        response["Cache-Control"] = "no-store"
        return response


class ProfilePreview(PermissionView):
    """The command, and a sentence beside each field that needs one, while somebody types."""

    permission = "profile.change"

    def post(self, request: HttpRequest) -> HttpResponse:
        draft = Draft.from_post(request.POST)
        reading = draft.reading()
        notes = said(note for note in reading.notes if note.code != "model_missing")
        edited = whole_number(request.POST.get("edited"))
        profile = Profile.objects.visible_to(request.user).filter(pk=edited).first() if edited else None
        context = form_context(request, draft, notes, spec=reading.spec, profile=profile, oob=True)
        response = render(request, "engines/profiles/preview.html", context)
        response["Cache-Control"] = "no-store"
        return response


class ProfileImport(PermissionView):
    """A pasted command, an exported profile or an adopted engine's command becomes the form of a new
    profile; what was not understood is said."""

    permission = "profile.change"

    def get(self, request: HttpRequest) -> HttpResponse:
        wanted = request.GET.get("engine")
        if wanted is None:
            return self._asked(request)
        engines = Engine.objects.visible_to(request.user).select_related("current_start")
        engine = get_object_or_404(engines, pk=whole_number(wanted))
        command = read_words(engine.current_start.command if engine.current_start else [])
        if not command.understood:
            return self._asked(request, notes=command.notes)
        draft = Draft.from_command(command)
        draft.note = _("From the running engine %(name)s") % {"name": engine.name}
        return self._form(request, draft, command.spec, command.notes)

    def post(self, request: HttpRequest) -> HttpResponse:
        text, file = request.POST.get("command", ""), request.FILES.get("file")
        if file is not None:
            try:
                text = file.read(_LARGEST_FILE).decode("utf-8-sig")
            except UnicodeDecodeError:
                text = ""
        if text.lstrip().startswith("{"):
            try:
                found = read_exported(text)
            except Unreadable as error:
                return self._asked(request, text, [error.note])
            return self._form(request, Draft.from_exported(found), found.spec, found.notes)
        command = read_text(text)
        if not command.understood:
            return self._asked(request, text, command.notes)
        return self._form(request, Draft.from_command(command), command.spec, command.notes)

    @staticmethod
    def _asked(request: HttpRequest, text: str = "", notes: Sequence[Note] = ()) -> HttpResponse:
        context = {"text": text, "sentences": _sentences(notes)}
        return render(request, "engines/profiles/import.html", context, status=400 if notes else 200)

    @staticmethod
    def _form(request: HttpRequest, draft: Draft, spec: ServeSpec, notes: Sequence[Note]) -> HttpResponse:
        sentences = _sentences(notes)
        if spec.secrets:
            sentence = _("Enter the values of these secrets again: %(names)s.") % {
                "names": ", ".join(spec.secrets)
            }
            sentences.append(Said(sentence, "warn"))
        reading = draft.reading()
        context = form_context(
            request,
            draft,
            said(note for note in reading.notes if note.code != "model_missing"),
            spec=reading.spec,
            models=known_models(request.user),
            imported=sentences,
        )
        response = render(request, "engines/profiles/form.html", context)
        response["Cache-Control"] = "no-store"
        return response


def _sentences(notes: Sequence[Note]) -> list[Said]:
    return [one for note in notes for one in said([note])[note.field]]
