"""Users and the audit trail, for administrators."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from kvadmin.actions.change_user import ChangeUser
from kvadmin.actions.create_user import CreateUser
from kvadmin.actions.reset_password import ResetPassword
from kvadmin.api.base import ReadViewSet
from kvadmin.api.serializers import EmptySerializer, StrictSerializer
from kvadmin.models import AuditEvent, User
from kvadmin.policies import Role


class AuditEventSerializer(serializers.ModelSerializer):
    class Meta:
        model = AuditEvent
        fields = [
            "id",
            "at",
            "actor",
            "actor_name",
            "source",
            "ip",
            "token_id",
            "verb",
            "subject_type",
            "subject_id",
            "subject_name",
            "before",
            "after",
        ]
        read_only_fields = fields


class AuditFilter(django_filters.FilterSet):
    actor = django_filters.CharFilter("actor_name", label="who, by name")
    verb = django_filters.CharFilter(label="what, such as engine.start")
    subject_type = django_filters.CharFilter(label="kind of thing, such as engines.host")
    subject_id = django_filters.CharFilter(label="the thing's id")
    since = django_filters.IsoDateTimeFilter("at", "gte", label="not before this time")
    until = django_filters.IsoDateTimeFilter("at", "lt", label="before this time")

    class Meta:
        model = AuditEvent
        fields: ClassVar = []


@extend_schema_view(
    list=extend_schema(summary="List what was done"),
    retrieve=extend_schema(summary="One audited change"),
)
class AuditViewSet(ReadViewSet):
    permissions: ClassVar = {"list": "audit.view", "retrieve": "audit.view"}
    queryset = AuditEvent.objects.all()
    serializer_class = AuditEventSerializer
    filterset_class = AuditFilter
    newest_first = True


class UserSerializer(serializers.ModelSerializer):
    email = serializers.CharField(read_only=True, help_text="Empty when there is none.")

    class Meta:
        model = User
        fields = [
            "id",
            "username",
            "first_name",
            "last_name",
            "email",
            "role",
            "is_active",
            "must_change_password",
            "date_joined",
            "last_login",
        ]
        read_only_fields = fields


class UserFilter(django_filters.FilterSet):
    username = django_filters.CharFilter()
    role = django_filters.ChoiceFilter(choices=Role.choices)
    is_active = django_filters.BooleanFilter()

    class Meta:
        model = User
        fields: ClassVar = []


class NewUserSerializer(StrictSerializer):
    username = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(choices=Role.choices, default=Role.VIEWER)
    name = serializers.CharField(default="", allow_blank=True, max_length=150)
    email = serializers.CharField(default="", allow_blank=True, max_length=254)


class UserChangeSerializer(StrictSerializer):
    role = serializers.ChoiceField(choices=Role.choices, required=False)
    is_active = serializers.BooleanField(required=False)
    name = serializers.CharField(allow_blank=True, max_length=150, required=False)
    email = serializers.CharField(allow_blank=True, max_length=254, required=False)


class UserWithPasswordSerializer(UserSerializer):
    password = serializers.CharField(
        allow_null=True,
        read_only=True,
        help_text="A one-time password. Only this answer has it; a repeat by Idempotency-Key has null.",
    )

    class Meta(UserSerializer.Meta):
        fields = [*UserSerializer.Meta.fields, "password"]
        read_only_fields = fields


@extend_schema_view(list=extend_schema(summary="List users"), retrieve=extend_schema(summary="One user"))
class UserViewSet(ReadViewSet):
    permissions: ClassVar = {
        "list": "user.view",
        "retrieve": "user.view",
        "create": "user.change",
        "partial_update": "user.change",
        "reset_password": "user.change",
    }
    queryset = User.objects.all()
    serializer_class = UserSerializer
    filterset_class = UserFilter
    once = ("password",)

    @extend_schema(
        summary="Make a user", request=NewUserSerializer, responses={201: UserWithPasswordSerializer}
    )
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        made = CreateUser(self.actor, **self.body(NewUserSerializer)).run()
        return Response({**UserSerializer(made.user).data, "password": made.password}, status=201)

    @extend_schema(summary="Change a user", request=UserChangeSerializer, responses=UserSerializer)
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        user = self.get_object()
        return Response(
            UserSerializer(ChangeUser(self.actor, user, **self.body(UserChangeSerializer)).run()).data
        )

    @extend_schema(
        summary="Give a user a one-time password",
        request=EmptySerializer,
        responses={200: UserWithPasswordSerializer},
    )
    @action(detail=True, methods=["post"], url_path="reset-password")
    def reset_password(self, request: Request, pk: str) -> Response:
        self.body(EmptySerializer)
        user = self.get_object()
        password = ResetPassword(self.actor, user).run()
        return Response({**UserSerializer(user).data, "password": password})
