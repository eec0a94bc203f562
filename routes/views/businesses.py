"""Businesses: made, changed and removed on their team's page."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kvadmin.actions import ActionError
from kvadmin.models import Team
from kvadmin.views.base import PermissionView, actor_of, add_action_error, attempt, require
from routes.actions.change_business import ChangeBusiness
from routes.actions.create_business import CreateBusiness
from routes.actions.remove_business import RemoveBusiness
from routes.models import Business


class BusinessForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("What will call the models, such as “shop search”."),
    )
    description = forms.CharField(
        label=gettext_lazy("Description"),
        max_length=500,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
    )


class MovableForm(BusinessForm):
    team = forms.ModelChoiceField(label=gettext_lazy("Team"), queryset=Team.objects.none())


class BusinessAdd(PermissionView):
    permission: ClassVar[str] = "gateway.use"

    def _team(self, request: HttpRequest, pk: int) -> Team:
        team = get_object_or_404(Team.objects.visible_to(request.user), pk=pk)
        require(request, "business.change", team)
        return team

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self._page(request, self._team(request, pk), BusinessForm())

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        team = self._team(request, pk)
        form = BusinessForm(request.POST)
        if form.is_valid():
            try:
                business = CreateBusiness(actor_of(request), team, **form.cleaned_data).run()
            except ActionError as error:
                add_action_error(form, error)
            else:
                messages.success(
                    request, _("%(name)s is made. Issue its first key.") % {"name": business.name}
                )
                return redirect(business.get_absolute_url())
        return self._page(request, team, form)

    def _page(self, request: HttpRequest, team: Team, form: BusinessForm) -> HttpResponse:
        context = {"team": team, "form": form}
        return render(request, "routes/business_form.html", context, status=400 if form.errors else 200)


class BusinessEdit(PermissionView):
    permission: ClassVar[str] = "gateway.use"

    def _business(self, request: HttpRequest, pk: int) -> Business:
        visible = Business.objects.visible_to(request.user).select_related("team")
        business = get_object_or_404(visible, pk=pk)
        require(request, "business.change", business)
        return business

    def _form(self, request: HttpRequest, business: Business, *sent: Any) -> BusinessForm:
        teams = Team.objects.owned_by(request.user)
        initial = {"name": business.name, "description": business.description, "team": business.team_id}
        if teams.count() < 2:
            return BusinessForm(*sent, initial=initial)
        form = MovableForm(*sent, initial=initial)
        form.fields["team"].queryset = teams
        return form

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        business = self._business(request, pk)
        return self._page(request, business, self._form(request, business))

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        business = self._business(request, pk)
        form = self._form(request, business, request.POST)
        if form.is_valid():
            try:
                saved = ChangeBusiness(actor_of(request), business, **form.cleaned_data).run()
            except ActionError as error:
                add_action_error(form, error)
            else:
                messages.success(request, _("Saved."))
                return redirect(saved.get_absolute_url())
        return self._page(request, business, form)

    def _page(self, request: HttpRequest, business: Business, form: BusinessForm) -> HttpResponse:
        context = {"team": business.team, "business": business, "form": form}
        return render(request, "routes/business_form.html", context, status=400 if form.errors else 200)


class BusinessRemove(PermissionView):
    permission: ClassVar[str] = "gateway.use"

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        business = get_object_or_404(Business.objects.visible_to(request.user).select_related("team"), pk=pk)
        team, name = business.team, business.name
        attempt(
            request, RemoveBusiness(actor_of(request), business), _("%(name)s is removed.") % {"name": name}
        )
        return redirect(team)


urlpatterns = [
    path("teams/<int:pk>/businesses/add/", BusinessAdd.as_view(), name="business_add"),
    path("businesses/<int:pk>/edit/", BusinessEdit.as_view(), name="business_edit"),
    path("businesses/<int:pk>/remove/", BusinessRemove.as_view(), name="business_remove"),
]
