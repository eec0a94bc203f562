"""Users and the audit trail, for administrators."""

from __future__ import annotations

from typing import ClassVar

import django_filters
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers

from kvadmin.api.base import ReadViewSet
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


@extend_schema_view(list=extend_schema(summary="List users"), retrieve=extend_schema(summary="One user"))
class UserViewSet(ReadViewSet):
    permissions: ClassVar = {"list": "user.view", "retrieve": "user.view"}
    queryset = User.objects.all()
    serializer_class = UserSerializer
    filterset_class = UserFilter
