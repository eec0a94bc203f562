"""Forms of the route pages. They carry the input; the action judges it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from engines.models import Engine
from engines.views.hosts.forms import LinesField
from kvadmin.crypto import has_secret
from routes.actions.route_input import PRICES, TIMES, TargetInput
from routes.choices import MaxTokensRule, Policy
from routes.models import Route, Target


def _text(**attrs: Any) -> forms.TextInput:
    return forms.TextInput(
        attrs={"autocomplete": "off", "spellcheck": "false", "autocapitalize": "off", **attrs}
    )


def _seconds(label: Any, help_text: Any, initial: float) -> forms.FloatField:
    return forms.FloatField(label=label, help_text=help_text, initial=initial, min_value=0.001)


def _price(label: Any) -> forms.FloatField:
    return forms.FloatField(label=label, required=False, min_value=0)


class RouteForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Model name"),
        max_length=200,
        widget=_text(placeholder="qwen3-8b-v1"),
        help_text=gettext_lazy(
            "What callers send as “model”. A version or quantization in it helps: qwen3-32b-awq."
        ),
    )
    aliases = LinesField(
        label=gettext_lazy("Aliases"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "class": "mono"}),
        help_text=gettext_lazy("Other names that mean the same, one a line."),
    )
    description = forms.CharField(
        label=gettext_lazy("Description"),
        required=False,
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy("What the model is good for; teams read it."),
    )
    enabled = forms.BooleanField(label=gettext_lazy("Callers may use it"), required=False, initial=True)
    auto_join = forms.BooleanField(
        label=gettext_lazy("Engines that serve one of these names join by themselves when they are ready"),
        required=False,
    )
    max_tokens = forms.IntegerField(
        label=gettext_lazy("Max tokens"),
        required=False,
        min_value=1,
        help_text=gettext_lazy(
            "The most a request may ask for; it should agree with the engines' max-model-len. Empty: any."
        ),
    )
    max_tokens_rule = forms.ChoiceField(
        label=gettext_lazy("When a request asks for more"),
        choices=MaxTokensRule.choices,
        initial=MaxTokensRule.REFUSE,
    )
    context_length = forms.IntegerField(
        label=gettext_lazy("Context length to show"),
        required=False,
        min_value=1,
        help_text=gettext_lazy("Empty: the least of the engines'."),
    )
    policy = forms.ChoiceField(
        label=gettext_lazy("Choice of target"), choices=Policy.choices, initial=Policy.PREFIX_AFFINITY
    )
    fallback = forms.ModelChoiceField(
        label=gettext_lazy("Fallback route"),
        queryset=Route.objects.none(),
        required=False,
        empty_label=gettext_lazy("None"),
        help_text=gettext_lazy("It takes over when no target of this one answers."),
    )
    connect_s = _seconds(gettext_lazy("Connect, s"), "", 5)
    first_byte_s = _seconds(gettext_lazy("First byte, s"), "", 120)
    idle_s = _seconds(gettext_lazy("Between bytes, s"), "", 60)
    total_s = _seconds(gettext_lazy("In total, s"), "", 3600)
    continuous_usage = forms.BooleanField(
        label=gettext_lazy("Have engines count tokens with every event, so that an abort is counted exactly"),
        required=False,
    )
    currency = forms.CharField(
        label=gettext_lazy("Currency"), required=False, max_length=8, widget=_text(placeholder="EUR")
    )
    prompt = _price(gettext_lazy("Prompt"))
    cached = _price(gettext_lazy("Cached prompt"))
    completion = _price(gettext_lazy("Answer"))

    NAMES = ("name", "aliases", "description")
    LIMITS = ("max_tokens", "max_tokens_rule", "context_length")
    CHOICE = ("policy", "fallback")
    TIMES = tuple(TIMES)
    PRICE = ("currency", *PRICES)

    def __init__(self, *args: Any, route: Route | None = None, **kwargs: Any):
        if route is not None:
            kwargs["initial"] = {
                **{name: getattr(route, name) for name in self._plain()},
                **(route.price or {}),
                **kwargs.get("initial", {}),
            }
        super().__init__(*args, **kwargs)
        others = Route.objects.all()
        self.fields["fallback"].queryset = others.exclude(pk=route.pk) if route is not None else others

    @classmethod
    def _plain(cls) -> list[str]:
        return [name for name in cls.base_fields if name not in cls.PRICE]

    def values(self) -> dict[str, Any]:
        """The cleaned form as settings of a route."""
        data = self.cleaned_data
        return {
            **{name: data[name] for name in self._plain()},
            "price": {name: data[name] for name in self.PRICE if data[name] not in {None, ""}} or None,
        }


class TargetForm(forms.Form):
    """One target: an engine, or an outside URL when no engine is chosen."""

    id = forms.IntegerField(required=False, widget=forms.HiddenInput)
    engine = forms.ModelChoiceField(
        label=gettext_lazy("Engine"),
        queryset=Engine.objects.none(),
        required=False,
        empty_label=gettext_lazy("An outside URL"),
    )
    base_url = forms.CharField(
        label=gettext_lazy("Base URL"), required=False, widget=_text(placeholder="http://vllm-b:8000/v1")
    )
    api_key = forms.CharField(
        label=gettext_lazy("Its key"),
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    model = forms.CharField(label=gettext_lazy("Model name there"), required=False, widget=_text())
    weight = forms.IntegerField(label=gettext_lazy("Weight"), initial=1, min_value=1, max_value=1000)
    enabled = forms.BooleanField(label=gettext_lazy("On"), required=False, initial=True)

    #: "" without a stored key
    stored = ""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.fields["engine"].queryset = Engine.objects.select_related("host").order_by("name")
        self.fields["engine"].label_from_instance = lambda engine: (
            f"{engine.name} · {engine.host.name} · {engine.get_observed_display()}"
        )

    def has_changed(self) -> bool:
        """A new row counts once an engine or a URL is in it."""
        return any(str(self[name].data or "").strip() for name in ("engine", "base_url", "id"))

    def target(self) -> TargetInput:
        data = self.cleaned_data
        outside = data["engine"] is None
        return TargetInput(
            engine=data["engine"],
            base_url=data["base_url"] if outside else "",
            # an empty field keeps a stored key
            api_key=data["api_key"] or None,
            model=data["model"],
            weight=data["weight"],
            enabled=data["enabled"],
            id=data["id"],
        )


class BaseTargets(forms.BaseFormSet):
    def filled(self) -> list[TargetForm]:
        return [
            form for form in self.forms if form.has_changed() and not form.cleaned_data.get("DELETE", False)
        ]

    def targets(self) -> list[TargetInput]:
        return [form.target() for form in self.filled()]


TargetForms = forms.formset_factory(
    TargetForm, formset=BaseTargets, extra=0, can_delete=True, max_num=200, absolute_max=400
)


def target_forms(route: Route | None, *sent: Any) -> BaseTargets:
    """The forms of a route's targets; a new route gets an empty one."""
    targets = list(route.targets.select_related("engine")) if route is not None else []
    initial = [_initial(target) for target in targets] or ([{}] if not sent else [])
    forms_ = TargetForms(*sent, initial=initial, prefix="targets")
    stored = {target.pk for target in targets if has_secret(target, "api_key")}
    for form in forms_.forms:
        known = form["id"].value()
        if str(known or "").isdigit() and int(known) in stored:
            form.fields["api_key"].widget.attrs["placeholder"] = _("stored; leave empty to keep it")
    return forms_


def _initial(target: Target) -> dict[str, Any]:
    return {
        "id": target.pk,
        "engine": target.engine_id,
        "base_url": f"{target.base_url}/v1" if target.base_url else "",
        "model": target.model,
        "weight": target.weight,
        "enabled": target.enabled,
    }


class ImportForm(forms.Form):
    text = forms.CharField(
        label=gettext_lazy("Routes"),
        strip=False,
        max_length=4_000_000,
        widget=forms.Textarea(
            attrs={
                "rows": 14,
                "class": "mono",
                "spellcheck": "false",
                "placeholder": '{"model_name": "qwen3-8b", "provider": "openai-compatible",\n'
                ' "base_url": "http://your-vllm-host:8000/v1", "api_key": "EMPTY",\n'
                ' "max_tokens": 32768, "timeout": 120}',
            }
        ),
        help_text=gettext_lazy(
            "One object or a list, as it stands. An address that is one of our engines becomes that engine."
        ),
    )
    replace = forms.BooleanField(
        label=gettext_lazy("Overwrite limits and targets of routes that exist and differ"), required=False
    )
