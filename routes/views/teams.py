"""Teams: who belongs, and what they own."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.db.models import Count, Prefetch, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kvadmin.actions import ActionError
from kvadmin.actions.change_team import ChangeTeam
from kvadmin.actions.create_team import CreateTeam
from kvadmin.actions.remove_team import RemoveTeam
from kvadmin.models import Membership, Team, User
from kvadmin.policies import TeamRole
from kvadmin.views.base import PermissionView, actor_of, add_action_error, attempt, keyset_page, search_text
from routes.models import Business, Key


class PersonField(forms.CharField):
    """A user by user name or email address; a User in ``cleaned_data``."""

    def clean(self, value: Any) -> User | None:
        text = super().clean(value)
        if not text:
            return None
        person = User.objects.filter(Q(username=text) | Q(email__iexact=text, email__gt="")).first()
        if person is None:
            raise forms.ValidationError(
                _("There is no user “%(name)s”. An administrator makes users.") % {"name": text[:60]}
            )
        return person


def _person_widget() -> forms.TextInput:
    return forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"})


class NewTeamForm(forms.Form):
    name = forms.CharField(label=gettext_lazy("Name"), max_length=100)
    owner = PersonField(
        label=gettext_lazy("Owner"),
        max_length=254,
        widget=_person_widget(),
        help_text=gettext_lazy(
            "User name or email of whoever will issue the team's keys. More people can be added afterwards."
        ),
    )


class PersonForm(forms.Form):
    person = PersonField(label=gettext_lazy("User name or email"), max_length=254, widget=_person_widget())
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=TeamRole.choices, initial=TeamRole.MEMBER)


class NameForm(forms.Form):
    name = forms.CharField(label=gettext_lazy("Name"), max_length=100)


class TeamList(PermissionView):
    permission: ClassVar[str] = "gateway.use"

    def get(self, request: HttpRequest) -> HttpResponse:
        text = search_text(request)
        teams = Team.objects.visible_to(request.user)
        if text:
            teams = teams.filter(Q(name__icontains=text) | Q(businesses__name__icontains=text)).distinct()
        page = keyset_page(teams, request.GET, by="name")
        counted = Team.objects.filter(pk__in=[team.pk for team in page.rows]).annotate(
            business_count=Count("businesses", distinct=True),
            people_count=Count("memberships", distinct=True),
        )
        counts = {team.pk: team for team in counted}
        keys = _usable_keys(counts)
        own = dict(request.user.memberships.values_list("team_id", "role"))
        rows = [
            {
                "team": counts[team.pk],
                "keys": keys.get(team.pk, 0),
                "role": TeamRole(own[team.pk]).label if team.pk in own else "",
            }
            for team in page.rows
        ]
        return render(request, "routes/team_list.html", {"page": page, "rows": rows, "text": text})


def _usable_keys(teams: Any) -> dict[int, int]:
    usable = Key.objects.usable().filter(business__team__in=list(teams)).values("business__team")
    return {row["business__team"]: row["n"] for row in usable.annotate(n=Count("pk"))}


class TeamAdd(PermissionView):
    permission: ClassVar[str] = "team.create"

    def get(self, request: HttpRequest) -> HttpResponse:
        return render(request, "routes/team_add.html", {"form": NewTeamForm()})

    def post(self, request: HttpRequest) -> HttpResponse:
        form = NewTeamForm(request.POST)
        if form.is_valid():
            people = {form.cleaned_data["owner"]: TeamRole.OWNER}
            try:
                return redirect(CreateTeam(actor_of(request), form.cleaned_data["name"], people).run())
            except ActionError as error:
                add_action_error(form, error)
        return render(request, "routes/team_add.html", {"form": form}, status=400)


class TeamView(PermissionView):
    """A page of one team; who may not see it learns that there is none."""

    permission: ClassVar[str] = "gateway.use"

    def team(self, request: HttpRequest, pk: int) -> Team:
        return get_object_or_404(Team.objects.visible_to(request.user), pk=pk)

    def page(
        self, request: HttpRequest, team: Team, form: PersonForm | None = None, name: NameForm | None = None
    ) -> HttpResponse:
        keys = Key.objects.living().prefetch_related("successors").order_by("name", "pk")
        businesses = (
            Business.objects.filter(team=team)
            .order_by("name")
            .prefetch_related(Prefetch("keys", keys, to_attr="living_keys"))
        )
        places = (
            Membership.objects.filter(team=team).select_related("user").order_by("-role", "user__username")
        )
        refused = any(form_ is not None for form_ in (form, name))
        context = {
            "team": team,
            "businesses": businesses,
            "places": places,
            "owns": request.user.may("team.change", team),
            "may_issue": request.user.may("key.change", team),
            "form": form or PersonForm(),
            "name_form": name or NameForm(initial={"name": team.name}),
            "roles": TeamRole.choices,
        }
        return render(request, "routes/team_detail.html", context, status=400 if refused else 200)


class TeamDetail(TeamView):
    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self.page(request, self.team(request, pk))


class TeamPeople(TeamView):
    """Add somebody."""

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        team = self.team(request, pk)
        form = PersonForm(request.POST)
        if form.is_valid():
            person, role = form.cleaned_data["person"], form.cleaned_data["role"]
            try:
                ChangeTeam(actor_of(request), team, people={person: role}).run()
            except ActionError as error:
                add_action_error(form, error)
            else:
                messages.success(request, _("%(name)s is in the team.") % {"name": person.get_username()})
                return redirect(team)
        return self.page(request, team, form=form)


class TeamPlace(TeamView):
    """Change somebody's place, or take them out (an empty role)."""

    def post(self, request: HttpRequest, pk: int, user_pk: int) -> HttpResponse:
        team = self.team(request, pk)
        place = get_object_or_404(team.memberships.select_related("user"), user_id=user_pk)
        role = request.POST.get("role") or None
        attempt(request, ChangeTeam(actor_of(request), team, people={place.user: role}), _("Saved."))
        if not Team.objects.visible_to(request.user).filter(pk=team.pk).exists():
            return redirect("routes:team_list")
        return redirect(team)


class TeamRename(TeamView):
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        team = self.team(request, pk)
        form = NameForm(request.POST)
        if form.is_valid():
            try:
                ChangeTeam(actor_of(request), team, name=form.cleaned_data["name"]).run()
            except ActionError as error:
                add_action_error(form, error)
            else:
                messages.success(request, _("Saved."))
                return redirect(team)
        return self.page(request, team, name=form)


class TeamRemove(TeamView):
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        team = self.team(request, pk)
        name = team.name
        attempt(request, RemoveTeam(actor_of(request), team), _("%(name)s is removed.") % {"name": name})
        if Team.objects.filter(pk=pk).exists():
            return redirect("routes:team_detail", pk)
        return redirect("routes:team_list")


urlpatterns = [
    path("teams/", TeamList.as_view(), name="team_list"),
    path("teams/add/", TeamAdd.as_view(), name="team_add"),
    path("teams/<int:pk>/", TeamDetail.as_view(), name="team_detail"),
    path("teams/<int:pk>/people/", TeamPeople.as_view(), name="team_people"),
    path("teams/<int:pk>/people/<int:user_pk>/", TeamPlace.as_view(), name="team_place"),
    path("teams/<int:pk>/rename/", TeamRename.as_view(), name="team_rename"),
    path("teams/<int:pk>/remove/", TeamRemove.as_view(), name="team_remove"),
]
