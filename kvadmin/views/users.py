"""Users: for administrators."""

from __future__ import annotations

from collections import Counter
from typing import Any

from allauth.mfa.models import Authenticator
from django import forms
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_variables

from kvadmin.actions import Action, ActionError
from kvadmin.actions.change_user import ChangeUser
from kvadmin.actions.create_user import CreateUser
from kvadmin.actions.lift_lock import LiftLock
from kvadmin.actions.reset_factors import ResetFactors
from kvadmin.actions.reset_password import ResetPassword
from kvadmin.models import User
from kvadmin.policies import Role
from kvadmin.views.base import PermissionView, actor_of, add_action_error, attempt, keyset_page, search_text


class UserForm(forms.Form):
    name = forms.CharField(label=gettext_lazy("Full name"), max_length=150, required=False)
    email = forms.CharField(
        label=gettext_lazy("Email"),
        required=False,
        max_length=254,
        help_text=gettext_lazy(
            "For signing in; kvadmin sends no mail. Must equal the address at the provider."
        ),
        widget=forms.TextInput(attrs={"inputmode": "email", "autocomplete": "off"}),
    )
    role = forms.ChoiceField(
        label=gettext_lazy("Role"),
        choices=Role.choices,
        initial=Role.VIEWER,
        help_text=gettext_lazy(
            "Viewers see hosts and engines, operators start and stop them, administrators also manage users. "
            "Members see their teams only."
        ),
    )


class NewUserForm(UserForm):
    username = forms.CharField(
        label=gettext_lazy("User name"),
        max_length=150,
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
        ),
    )
    field_order = ["username", "name", "email", "role"]


@sensitive_variables("password")
def password_page(request: HttpRequest, person: User, password: str) -> HttpResponse:
    """A one-time password, on the answer to the POST that made it and nowhere else."""
    response = render(request, "users/password.html", {"person": person, "password": password})
    response["Cache-Control"] = "no-store"
    return response


class UserListView(PermissionView):
    permission = "user.view"

    def get(self, request: HttpRequest) -> HttpResponse:
        text, role = search_text(request), request.GET.get("role", "")
        people = User.objects.annotate(
            factors=Count("authenticator", filter=~Q(authenticator__type=Authenticator.Type.RECOVERY_CODES))
        )
        if text:
            people = people.filter(
                Q(username__icontains=text)
                | Q(email__icontains=text)
                | Q(first_name__icontains=text)
                | Q(last_name__icontains=text)
            )
        if role in Role.values:
            people = people.filter(role=role)
        context = {
            "page": keyset_page(people, request.GET, by="username"),
            "text": text,
            "role": role,
            "roles": Role.choices,
        }
        return render(request, "users/list.html", context)


class UserAddView(PermissionView):
    permission = "user.change"

    def get(self, request: HttpRequest) -> HttpResponse:
        return render(request, "users/form.html", {"form": NewUserForm()})

    def post(self, request: HttpRequest) -> HttpResponse:
        form = NewUserForm(request.POST)
        if form.is_valid():
            try:
                made = CreateUser(actor_of(request), **form.cleaned_data).run()
            except ActionError as error:
                add_action_error(form, error)
            else:
                return password_page(request, made.user, made.password)
        return render(request, "users/form.html", {"form": form})


class UserDetailView(PermissionView):
    permission = "user.view"

    def page(self, request: HttpRequest, person: User, form: UserForm) -> HttpResponse:
        labels = {
            "totp": _("app"),
            "webauthn": _("passkeys"),
            "recovery_codes": _("recovery codes"),
        }
        kinds = Authenticator.objects.filter(user=person).values_list("type", flat=True)
        factors = {labels[kind]: count for kind, count in Counter(kinds).items()}
        return render(request, "users/detail.html", {"person": person, "form": form, "factors": factors})

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        person = get_object_or_404(User, pk=pk)
        initial = {"name": person.get_full_name(), "email": person.email, "role": person.role}
        return self.page(request, person, UserForm(initial=initial))

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        person = get_object_or_404(User, pk=pk)
        form = UserForm(request.POST)
        if form.is_valid():
            try:
                ChangeUser(actor_of(request), user=person, **form.cleaned_data).run()
            except ActionError as error:
                add_action_error(form, error)
            else:
                return redirect(person)
        return self.page(request, get_object_or_404(User, pk=pk), form)


class UserActionView(PermissionView):
    """A POST that runs one action on a user and goes back to the user's page."""

    permission = "user.change"
    done: Any = ""

    def action(self, request: HttpRequest, person: User) -> Action[Any]:
        raise NotImplementedError

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        person = get_object_or_404(User, pk=pk)
        attempt(request, self.action(request, person), str(self.done))
        return redirect(person)


class DeactivateView(UserActionView):
    done = gettext_lazy("The account is deactivated.")

    def action(self, request: HttpRequest, person: User) -> Action[Any]:
        return ChangeUser(actor_of(request), user=person, is_active=False)


class ActivateView(UserActionView):
    done = gettext_lazy("The account is active again.")

    def action(self, request: HttpRequest, person: User) -> Action[Any]:
        return ChangeUser(actor_of(request), user=person, is_active=True)


class LiftLockView(UserActionView):
    done = gettext_lazy("The lock is lifted.")

    def action(self, request: HttpRequest, person: User) -> Action[Any]:
        return LiftLock(actor_of(request), user=person)


class ResetFactorsView(UserActionView):
    done = gettext_lazy("The second factor is removed.")

    def action(self, request: HttpRequest, person: User) -> Action[Any]:
        return ResetFactors(actor_of(request), user=person)


class ResetPasswordView(UserActionView):
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        person = get_object_or_404(User, pk=pk)
        password = attempt(request, ResetPassword(actor_of(request), user=person))
        return redirect(person) if password is None else password_page(request, person, password)


urlpatterns = [
    path("users/", UserListView.as_view(), name="user_list"),
    path("users/add/", UserAddView.as_view(), name="user_add"),
    path("users/<int:pk>/", UserDetailView.as_view(), name="user_detail"),
    path("users/<int:pk>/activate/", ActivateView.as_view(), name="user_activate"),
    path("users/<int:pk>/deactivate/", DeactivateView.as_view(), name="user_deactivate"),
    path("users/<int:pk>/lift-lock/", LiftLockView.as_view(), name="user_lift_lock"),
    path("users/<int:pk>/reset-factors/", ResetFactorsView.as_view(), name="user_reset_factors"),
    path("users/<int:pk>/reset-password/", ResetPasswordView.as_view(), name="user_reset_password"),
]
