"""Forms of the key pages. They carry the input; the actions judge it."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from engines.views.hosts.forms import LinesField, SecretTextarea
from kvadmin.models import User
from routes.actions.key_input import LIMITS
from routes.models import Business, Key, Route


def end_of_day(day: date | None) -> datetime | None:
    """The last second of a day, UTC: a key works through the day that was named."""
    return None if day is None else datetime.combine(day, time(23, 59, 59), UTC)


def _limit(label: Any, help_text: Any = "") -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, min_value=1, help_text=help_text)


class BoundsForm(forms.Form):
    """A key's name and bounds."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("Where it will be used, such as “production” or “laptop of Ada”."),
    )
    all_models = forms.BooleanField(
        label=gettext_lazy("All models, also those that come later"), required=False, initial=True
    )
    models = forms.MultipleChoiceField(
        label=gettext_lazy("Or only these"), required=False, widget=forms.CheckboxSelectMultiple
    )
    expires_on = forms.DateField(
        label=gettext_lazy("Last valid day"),
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        help_text=gettext_lazy("By UTC, that day included. Empty: until it is revoked."),
    )
    addresses = LinesField(
        label=gettext_lazy("Allowed addresses"),
        required=False,
        widget=forms.Textarea(
            attrs={"rows": 3, "spellcheck": "false", "class": "mono", "placeholder": "10.1.0.0/16"}
        ),
        help_text=gettext_lazy("An address or network a line, IPv4 or IPv6. Empty: from everywhere."),
    )
    requests_per_minute = _limit(gettext_lazy("Requests per minute"))
    tokens_per_minute = _limit(gettext_lazy("Tokens per minute"), gettext_lazy("Prompt and answer together."))
    concurrent = _limit(gettext_lazy("Requests at once"))
    monthly_tokens = _limit(gettext_lazy("Tokens per calendar month"))

    LIMITS = tuple(LIMITS)

    def __init__(self, *args: Any, key: Key | None = None, **kwargs: Any):
        if key is not None:
            kwargs["initial"] = {
                "name": key.name,
                "all_models": key.models is None,
                "models": key.models or [],
                "expires_on": key.expires_at.astimezone(UTC).date() if key.expires_at else None,
                "addresses": key.addresses,
                **{name: getattr(key, name) for name in LIMITS},
                **kwargs.get("initial", {}),
            }
        super().__init__(*args, **kwargs)
        self.key = key
        names = list(Route.objects.order_by("name").values_list("name", "description"))
        choices = [(name, f"{name} · {text}" if text else name) for name, text in names]
        known = {name for name, _text in names}
        # names that no route has (yet, or any more) stay until somebody takes them out
        choices += [
            (name, _("%(name)s (no such route)") % {"name": name})
            for name in (key.models or [] if key is not None else [])
            if name not in known
        ]
        self.fields["models"].choices = choices

    def bounds(self) -> dict[str, Any]:
        """The cleaned form as bounds of a key."""
        data = self.cleaned_data
        bounds: dict[str, Any] = {
            "name": data["name"],
            "models": None if data["all_models"] else data["models"],
            "expires_at": self._expires_at(data["expires_on"]),
            "addresses": data["addresses"],
            **{name: data[name] for name in LIMITS},
        }
        return bounds

    def _expires_at(self, day: date | None) -> datetime | None:
        """A key whose day is not changed keeps its second."""
        old = self.key.expires_at if self.key is not None else None
        return old if old is not None and old.astimezone(UTC).date() == day else end_of_day(day)


class IssueForm(BoundsForm):
    business = forms.ModelChoiceField(
        label=gettext_lazy("Business"),
        queryset=Business.objects.none(),
        empty_label=gettext_lazy("Choose a business"),
    )
    field_order = ["business", "name"]

    def __init__(self, *args: Any, user: User, **kwargs: Any):
        super().__init__(*args, **kwargs)
        owned = Business.objects.owned_by(user).select_related("team").order_by("team__name", "name")
        field = self.fields["business"]
        field.queryset = owned
        field.label_from_instance = lambda business: f"{business.team} / {business}"
        if len(owned) == 1:
            field.initial = owned[0].pk


class ImportForm(IssueForm):
    secret = forms.CharField(
        label=gettext_lazy("The secret that callers send"),
        strip=False,
        max_length=2000,
        widget=SecretTextarea(
            attrs={"rows": 2, "autocomplete": "off", "spellcheck": "false", "class": "mono"}
        ),
        help_text=gettext_lazy(
            "Only its digest and its last four characters are kept. One that is easy to guess is refused."
        ),
    )
    field_order = ["business", "name", "secret"]


class RotateForm(forms.Form):
    overlap = forms.TypedChoiceField(
        label=gettext_lazy("The old key goes on working for"),
        coerce=int,
        initial=7 * 24,
        choices=[
            (1, gettext_lazy("1 hour")),
            (24, gettext_lazy("1 day")),
            (3 * 24, gettext_lazy("3 days")),
            (7 * 24, gettext_lazy("7 days")),
            (14 * 24, gettext_lazy("14 days")),
            (30 * 24, gettext_lazy("30 days")),
            (90 * 24, gettext_lazy("90 days")),
            (0, gettext_lazy("not at all: it ends at once")),
        ],
    )

    @property
    def span(self) -> timedelta:
        return timedelta(hours=self.cleaned_data["overlap"])


class OverlapForm(forms.Form):
    works_until = forms.DateField(
        label=gettext_lazy("Last valid day"),
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
    )
