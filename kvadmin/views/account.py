"""The account page: one's own name, language, theme, and the ways to sign in."""

from __future__ import annotations

from collections import Counter

from allauth.mfa.models import Authenticator
from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, path, reverse
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kvadmin.actions import ActionError
from kvadmin.actions.change_profile import ChangeProfile
from kvadmin.models import User
from kvadmin.models.user import Theme
from kvadmin.views.base import PermissionView, actor_of, add_action_error
from kvadmin.views.preferences import remember_language


class ProfileForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=150,
        required=False,
        help_text=gettext_lazy("As others shall read it."),
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    language = forms.ChoiceField(label=gettext_lazy("Language"), required=False)
    theme = forms.ChoiceField(label=gettext_lazy("Theme"), choices=Theme.choices)

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.fields["language"].choices = [
            ("", _("As the browser says")),
            *(
                (code, translation.get_language_info(code)["name_local"])
                for code, _name in settings.LANGUAGES
            ),
        ]


def tokens_url() -> str:
    """The page of API tokens, where there is one."""
    try:
        return reverse("kvadmin:token_list")
    except NoReverseMatch:
        return ""


class AccountView(PermissionView):
    permission = "account.own"

    def page(self, request: HttpRequest, form: ProfileForm) -> HttpResponse:
        kinds = Authenticator.objects.filter(user=request.user).values_list("type", flat=True)
        context = {"form": form, "factors": dict(Counter(kinds)), "tokens_url": tokens_url()}
        return render(request, "account/profile.html", context)

    def get(self, request: HttpRequest) -> HttpResponse:
        user: User = request.user
        return self.page(
            request,
            ProfileForm(
                initial={"name": user.get_full_name(), "language": user.language, "theme": user.theme}
            ),
        )

    def post(self, request: HttpRequest) -> HttpResponse:
        form = ProfileForm(request.POST)
        if form.is_valid():
            try:
                ChangeProfile(actor_of(request), user=request.user, **form.cleaned_data).run()
            except ActionError as error:
                add_action_error(form, error)
            else:
                language = form.cleaned_data["language"]
                with translation.override(language or translation.get_language()):
                    messages.success(request, _("Saved."))
                response = redirect("kvadmin:account")
                if language:
                    remember_language(response, language)
                return response
        return self.page(request, form)


urlpatterns = [
    path("account/", AccountView.as_view(), name="account"),
]
