"""Teams and their people."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kvadmin.actions.change_team import ChangeTeam
from kvadmin.actions.create_team import CreateTeam
from kvadmin.actions.remove_team import RemoveTeam
from kvadmin.api.base import ReadViewSet
from kvadmin.api.serializers import StrictSerializer
from kvadmin.models import Team, User
from kvadmin.policies import TeamRole


class TeamRefSerializer(serializers.ModelSerializer):
    class Meta:
        model = Team
        fields = ["id", "name"]
        read_only_fields = fields


class TeamSerializer(serializers.ModelSerializer):
    people = serializers.SerializerMethodField(help_text="User name to place: owner or member.")

    class Meta:
        model = Team
        fields = ["id", "name", "people", "created_at"]
        read_only_fields = fields

    def get_people(self, team: Team) -> dict[str, str]:
        return {place.user.get_username(): str(place.role) for place in team.memberships.all()}


class _People(StrictSerializer):
    """Turns user names into users."""

    def validate_people(self, people: dict[str, str | None]) -> dict[User, str | None]:
        users = {user.get_username(): user for user in User.objects.filter(username__in=people)}
        unknown = [name for name in people if name not in users]
        if unknown:
            raise serializers.ValidationError(
                _("There is no user “%(name)s”. An administrator makes users.") % {"name": unknown[0][:60]}
            )
        return {users[name]: place for name, place in people.items()}


class NewTeamSerializer(_People):
    name = serializers.CharField(max_length=100)
    people = serializers.DictField(
        child=serializers.ChoiceField(choices=TeamRole.choices),
        default=dict,
        help_text="User name to place; at least one owner.",
    )
    without_owner = serializers.BooleanField(default=False, help_text="Let it begin without an owner.")


class TeamChangeSerializer(_People):
    name = serializers.CharField(max_length=100, required=False)
    people = serializers.DictField(
        child=serializers.ChoiceField(choices=TeamRole.choices, allow_null=True),
        required=False,
        help_text="User name to another place; null takes somebody out. Who is not named stays.",
    )
    without_owner = serializers.BooleanField(
        required=False, help_text="Administrators only: leave the team without an owner."
    )


class TeamFilter(django_filters.FilterSet):
    name = django_filters.CharFilter()

    class Meta:
        model = Team
        fields: ClassVar = []


@extend_schema_view(
    list=extend_schema(summary="List teams", description="Your own; all of them for operators."),
    retrieve=extend_schema(summary="One team"),
)
class TeamViewSet(ReadViewSet):
    permissions: ClassVar = {
        "list": "gateway.use",
        "retrieve": "gateway.use",
        "create": "team.create",
        "partial_update": "gateway.use",
        "destroy": "team.remove",
    }
    queryset = Team.objects.all()
    serializer_class = TeamSerializer
    filterset_class = TeamFilter

    def get_queryset(self) -> QuerySet[Team]:
        return Team.objects.visible_to(self.request.user).prefetch_related("memberships__user")

    def _answer(self, team: Team, status: int = 200) -> Response:
        fresh = Team.objects.prefetch_related("memberships__user").get(pk=team.pk)
        return Response(TeamSerializer(fresh).data, status=status)

    @extend_schema(summary="Make a team", request=NewTeamSerializer, responses={201: TeamSerializer})
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self._answer(CreateTeam(self.actor, **self.body(NewTeamSerializer)).run(), 201)

    @extend_schema(
        summary="Rename a team, or change its people",
        description="By its owners and administrators.",
        request=TeamChangeSerializer,
        responses=TeamSerializer,
    )
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        team = self.get_object()
        return self._answer(ChangeTeam(self.actor, team, **self.body(TeamChangeSerializer)).run())

    @extend_schema(
        summary="Remove a team", description="Only once it has no business left.", responses={204: None}
    )
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        RemoveTeam(self.actor, self.get_object()).run()
        return Response(status=204)
