"""Businesses: what keys are issued for."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from engines.api.refs import Known
from kvadmin.api.base import ReadViewSet
from kvadmin.api.serializers import StrictSerializer
from kvadmin.models import Team
from routes.actions.change_business import ChangeBusiness
from routes.actions.create_business import CreateBusiness
from routes.actions.remove_business import RemoveBusiness
from routes.api.teams import TeamRefSerializer
from routes.models import Business

_ID = {"min_value": 1, "max_value": 2**63 - 1}


class BusinessRefSerializer(serializers.ModelSerializer):
    class Meta:
        model = Business
        fields = ["id", "name"]
        read_only_fields = fields


class BusinessSerializer(serializers.ModelSerializer):
    team = TeamRefSerializer(read_only=True)

    class Meta:
        model = Business
        fields = ["id", "team", "name", "description", "created_at"]
        read_only_fields = fields


class NewBusinessSerializer(StrictSerializer):
    team = Known(queryset=Team.objects.all(), help_text="The team's id.")
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(default="", allow_blank=True, max_length=500)


class BusinessChangeSerializer(StrictSerializer):
    team = Known(queryset=Team.objects.all(), required=False, help_text="Another team that you own.")
    name = serializers.CharField(max_length=100, required=False)
    description = serializers.CharField(allow_blank=True, max_length=500, required=False)


class BusinessFilter(django_filters.FilterSet):
    team = django_filters.NumberFilter("team_id", **_ID, label="team's id")
    name = django_filters.CharFilter()

    class Meta:
        model = Business
        fields: ClassVar = []


@extend_schema_view(
    list=extend_schema(summary="List businesses"), retrieve=extend_schema(summary="One business")
)
class BusinessViewSet(ReadViewSet):
    permissions: ClassVar = dict.fromkeys(
        ("list", "retrieve", "create", "partial_update", "destroy"), "gateway.use"
    )
    queryset = Business.objects.all()
    serializer_class = BusinessSerializer
    filterset_class = BusinessFilter

    def get_queryset(self) -> QuerySet[Business]:
        return Business.objects.visible_to(self.request.user).select_related("team")

    def _answer(self, business: Business, status: int = 200) -> Response:
        fresh = Business.objects.select_related("team").get(pk=business.pk)
        return Response(BusinessSerializer(fresh).data, status=status)

    @extend_schema(
        summary="Make a business",
        description="By an owner of the team.",
        request=NewBusinessSerializer,
        responses={201: BusinessSerializer},
    )
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self._answer(CreateBusiness(self.actor, **self.body(NewBusinessSerializer)).run(), 201)

    @extend_schema(
        summary="Change a business", request=BusinessChangeSerializer, responses=BusinessSerializer
    )
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        business = self.get_object()
        return self._answer(ChangeBusiness(self.actor, business, **self.body(BusinessChangeSerializer)).run())

    @extend_schema(
        summary="Remove a business",
        description="Only once its keys are revoked; they go with it.",
        responses={204: None},
    )
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        RemoveBusiness(self.actor, self.get_object()).run()
        return Response(status=204)
