"""Making, changing and removing an engine."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Max
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views import View

from engines.actions.change_engine import ChangeEngine
from engines.actions.create_engine import CreateEngine
from engines.actions.engine_input import suggest_port
from engines.actions.remove_engine import RemoveEngine
from engines.actions.start_engine import StartEngine
from engines.choices import Launcher
from engines.models import Engine, Host, Revision, VllmEnvironment
from engines.views.engines.act import tell
from kvadmin.actions import ActionError
from kvadmin.numbers import whole_number
from kvadmin.views.base import PermissionView, actor_of


def newest_revisions() -> Any:
    """The newest revision of every profile in use, for choosing."""
    newest = Revision.objects.values("profile").annotate(n=Max("pk")).values("n")
    return (
        Revision.objects.filter(pk__in=newest, profile__archived_at=None)
        .select_related("profile")
        .order_by("profile__name")
    )


class RevisionChoice(forms.ModelChoiceField):
    def label_from_instance(self, obj: Revision) -> str:
        return f"{obj.profile.name} r{obj.number} · {obj.model}"


class _OfHost(forms.Select):
    """Options of environments, each with the host it is on: the page offers those of the chosen one."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **kwargs)
        environment = getattr(value, "instance", None)
        if environment is not None:
            option["attrs"]["data-host"] = str(environment.host_id)
        return option


class EnvironmentChoice(forms.ModelChoiceField):
    widget = _OfHost

    def label_from_instance(self, obj: VllmEnvironment) -> str:
        return f"{obj.host.name} · vLLM {obj.version} · {obj.path}"


class EngineForm(forms.Form):
    """Input of CreateEngine and ChangeEngine; what is wrong with it the action says."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("Unique over all hosts. A version or quantization in it helps: qwen3-8b-v1."),
    )
    revision = RevisionChoice(
        label=gettext_lazy("Profile"),
        queryset=Revision.objects.none(),
        empty_label=gettext_lazy("Choose a profile"),
        help_text=gettext_lazy("How the model starts."),
    )
    host = forms.ModelChoiceField(
        label=gettext_lazy("Host"),
        queryset=Host.objects.none(),
        help_text=gettext_lazy("Where it runs."),
    )
    environment = EnvironmentChoice(
        label=gettext_lazy("vLLM"),
        queryset=VllmEnvironment.objects.none(),
        required=False,
        empty_label=gettext_lazy("The newest on the host"),
        help_text=gettext_lazy("The installed vLLM to start it with. It must be on the chosen host."),
    )
    port = forms.IntegerField(
        label=gettext_lazy("Port"),
        min_value=1,
        max_value=65535,
        required=False,
        help_text=gettext_lazy("Empty: the first port from 8000 that no engine on the host has."),
    )
    bind_address = forms.CharField(
        label=gettext_lazy("Bind address"),
        required=False,
        help_text=gettext_lazy(
            "Where the engine listens. Empty: loopback on this machine, the host's service address elsewhere."
        ),
    )
    keep_running = forms.BooleanField(
        label=gettext_lazy("Keep running"),
        required=False,
        help_text=gettext_lazy("Start it again after a crash or a reboot of its host."),
    )

    def __init__(self, *args: Any, engine: Engine | None = None, user: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        revisions = newest_revisions()
        if engine is not None:
            del self.fields["host"]
            self.fields["port"].needed_where_shown = True
            self.fields["port"].help_text = _("It changes only while the engine is stopped.")
            self.fields["bind_address"].help_text = _(
                "Where the engine listens. It changes only while the engine is stopped."
            )
            self.fields["environment"].help_text = _("The installed vLLM that the next start uses.")
            self.fields["name"].help_text = ""
            self.fields["name"].disabled = True
            if engine.revision_id:
                profile = engine.revision.profile
                revisions = Revision.objects.filter(profile=profile).select_related("profile")
            self.fields["environment"].queryset = engine.host.environments.filter(usable=True)
            self.fields["revision"].required = engine.revision_id is not None
        else:
            self.fields["host"].queryset = Host.objects.visible_to(user)
            self.fields["environment"].queryset = VllmEnvironment.objects.filter(usable=True).select_related(
                "host"
            )
        self.fields["revision"].queryset = revisions

    def add_refusal(self, error: ActionError) -> None:
        """Put an action's refusal beside the field it names."""
        for name, sentences in (getattr(error, "errors", None) or {error.field: [error.message]}).items():
            for sentence in sentences:
                text = f"{sentence} {error.remedy}".strip()
                self.add_error(name if name in self.fields else None, text)


class EngineAddView(PermissionView, View):
    permission = "engine.change"

    def get(self, request: HttpRequest) -> HttpResponse:
        initial = {
            name: request.GET[name] for name in ("host", "revision", "environment") if name in request.GET
        }
        host = Host.objects.filter(pk=whole_number(initial.get("host"))).first()
        host = host or Host.objects.visible_to(request.user).order_by("pk").first()
        if host is not None:
            initial.setdefault("host", host.pk)
            initial["port"] = suggest_port(host)
        return self._page(request, EngineForm(initial=initial, user=request.user))

    def post(self, request: HttpRequest) -> HttpResponse:
        form = EngineForm(request.POST, user=request.user)
        if form.is_valid():
            actor = actor_of(request)
            try:
                engine = CreateEngine(actor=actor, **form.cleaned_data).run()
            except ActionError as error:
                form.add_refusal(error)
            else:
                if "start" in request.POST:
                    try:
                        StartEngine(actor=actor, engine=engine).run()
                    except ActionError as error:
                        tell(request, error)
                return redirect("engines:engine_detail", pk=engine.pk)
        return self._page(request, form, status=422)

    def _page(self, request: HttpRequest, form: EngineForm, status: int = 200) -> HttpResponse:
        missing = {
            "host": not form.fields["host"].queryset.exists(),
            "revision": not form.fields["revision"].queryset.exists(),
            "environment": not form.fields["environment"].queryset.exists(),
        }
        return render(request, "engines/engine_add.html", {"form": form, "missing": missing}, status=status)


class EngineChangeView(PermissionView, View):
    permission = "engine.change"

    def _engine(self, request: HttpRequest, pk: int) -> Engine:
        return get_object_or_404(
            Engine.objects.visible_to(request.user).select_related("host", "revision__profile"), pk=pk
        )

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        engine = self._engine(request, pk)
        initial = {
            "name": engine.name,
            "revision": request.GET.get("revision", engine.revision_id),
            "environment": engine.environment_id,
            "port": engine.port,
            "bind_address": engine.bind_address,
            "keep_running": engine.keep_running,
        }
        form = EngineForm(initial=initial, engine=engine, user=request.user)
        return render(request, "engines/engine_edit.html", self._context(engine, form))

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        engine = self._engine(request, pk)
        form = EngineForm(request.POST, initial={"name": engine.name}, engine=engine, user=request.user)
        if form.is_valid():
            values = {key: value for key, value in form.cleaned_data.items() if key != "name"}
            try:
                ChangeEngine(actor=actor_of(request), engine=engine, **values).run()
            except ActionError as error:
                form.add_refusal(error)
            else:
                messages.success(request, _("Saved. What needs a restart takes effect with the next start."))
                return redirect("engines:engine_detail", pk=engine.pk)
        return render(request, "engines/engine_edit.html", self._context(engine, form), status=422)

    @staticmethod
    def _context(engine: Engine, form: EngineForm) -> dict[str, Any]:
        """``unseen``: whether it still runs is not known, so that it can only be stopped or forgotten."""
        ours = engine.starts.exclude(launcher=Launcher.ADOPTED)
        return {
            "form": form,
            "engine": engine,
            "has_files": ours.exclude(directory="").exists(),
            "unseen": ours.filter(ended_at=None).exists(),
        }


class EngineRemoveView(PermissionView, View):
    permission = "engine.change"
    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        engine = get_object_or_404(Engine.objects.visible_to(request.user), pk=pk)
        try:
            RemoveEngine(
                actor=actor_of(request),
                engine=engine,
                forget="forget" in request.POST,
                remove_files="remove_files" in request.POST,
            ).run()
        except ActionError as error:
            tell(request, error)
            return redirect("engines:engine_detail", pk=pk)
        messages.success(request, _("%(name)s is removed.") % {"name": engine.name})
        return redirect("engines:engine_list")
