"""Routes: model names that callers use, and what serves them."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import django_filters
from django.db.models import Q, QuerySet
from django.utils.translation import gettext
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from engines.api.refs import EngineRefSerializer, Known
from engines.models import Engine
from kvadmin.api.base import ReadViewSet
from kvadmin.api.serializers import StrictSerializer
from kvadmin.crypto import has_secret
from routes import naming
from routes.actions.export_routes import ExportRoutes
from routes.actions.import_routes import ImportRoutes
from routes.actions.remove_route import RemoveRoute
from routes.actions.route_input import MOST_ALIASES, MOST_TARGETS, PRICES, TIMES, TargetInput
from routes.actions.save_route import SaveRoute
from routes.choices import MaxTokensRule, Policy, RouteState
from routes.facts import warnings_of_route
from routes.models import Route, Target

_ID = {"min_value": 1, "max_value": 2**63 - 1}
_COUNT = {"min_value": 1, "max_value": 2**31 - 1}


class TargetSerializer(serializers.ModelSerializer):
    engine = EngineRefSerializer(read_only=True, allow_null=True)
    has_key = serializers.SerializerMethodField(help_text="Whether a key for it is stored; never shown.")
    served_name = serializers.CharField(read_only=True, help_text="The model name that is sent to it.")
    takes_requests = serializers.BooleanField(read_only=True)

    class Meta:
        model = Target
        fields = [
            "id",
            "engine",
            "base_url",
            "has_key",
            "model",
            "served_name",
            "weight",
            "enabled",
            "takes_requests",
        ]
        read_only_fields = fields

    def get_has_key(self, target: Target) -> bool:
        return has_secret(target, "api_key")


class PriceSerializer(StrictSerializer):
    """For a million tokens."""

    currency = serializers.CharField(max_length=8, help_text="Such as EUR.")

    def get_fields(self) -> dict[str, serializers.Field]:
        amounts = {
            name: serializers.FloatField(required=False, allow_null=True, min_value=0, max_value=1e8)
            for name in PRICES
        }
        return {**super().get_fields(), **amounts}


class RouteSerializer(serializers.ModelSerializer):
    aliases = serializers.ListField(child=serializers.CharField(), read_only=True)
    targets = TargetSerializer(many=True, read_only=True)
    state = serializers.ChoiceField(choices=RouteState.choices, read_only=True)
    fallback = serializers.IntegerField(source="fallback_id", read_only=True, allow_null=True)
    price = PriceSerializer(read_only=True, allow_null=True)
    context = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="As set, else the least of its engines'."
    )
    warnings = serializers.SerializerMethodField(help_text="What does not fit together, in sentences.")

    class Meta:
        model = Route
        fields = [
            "id",
            "name",
            "aliases",
            "description",
            "enabled",
            "state",
            "policy",
            "max_tokens",
            "max_tokens_rule",
            *TIMES,
            "fallback",
            "continuous_usage",
            "auto_join",
            "context_length",
            "context",
            "price",
            "targets",
            "warnings",
            "created_at",
        ]
        read_only_fields = fields

    def get_warnings(self, route: Route) -> list[str]:
        notes = [*warnings_of_route(route), *naming.hints(route.name)]
        return [note.text(gettext) for note in notes]


class TargetInputSerializer(StrictSerializer):
    id = serializers.IntegerField(
        required=False, allow_null=True, help_text="Of a present target, to keep it with its key.", **_ID
    )
    engine = Known(queryset=Engine.objects.all(), required=False, allow_null=True, help_text="Engine's id.")
    base_url = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=1000,
        help_text="In place of engine; /v1 may be there.",
    )
    api_key = serializers.CharField(
        required=False,
        allow_null=True,
        allow_blank=True,
        write_only=True,
        max_length=4000,
        help_text="For base_url; null keeps the stored one, EMPTY is none. Never shown again.",
    )
    model = serializers.CharField(
        required=False, allow_blank=True, max_length=300, help_text="Its own name for the model."
    )
    weight = serializers.IntegerField(required=False, min_value=1, max_value=1000)
    enabled = serializers.BooleanField(required=False)


class RouteInputSerializer(StrictSerializer):
    name = serializers.CharField(max_length=naming.LONGEST)
    aliases = serializers.ListField(
        child=serializers.CharField(max_length=naming.LONGEST), required=False, max_length=MOST_ALIASES
    )
    description = serializers.CharField(required=False, allow_blank=True, max_length=1000)
    enabled = serializers.BooleanField(required=False)
    policy = serializers.ChoiceField(choices=Policy.choices, required=False)
    max_tokens = serializers.IntegerField(required=False, allow_null=True, **_COUNT)
    max_tokens_rule = serializers.ChoiceField(choices=MaxTokensRule.choices, required=False)
    fallback = Known(queryset=Route.objects.all(), required=False, allow_null=True, help_text="Route's id.")
    continuous_usage = serializers.BooleanField(
        required=False, help_text="Have engines count with every event, so that an abort is billed exactly."
    )
    auto_join = serializers.BooleanField(
        required=False, help_text="Let engines that serve one of its names join when they are ready."
    )
    context_length = serializers.IntegerField(required=False, allow_null=True, **_COUNT)
    price = PriceSerializer(required=False, allow_null=True)
    targets = TargetInputSerializer(
        many=True, required=False, max_length=MOST_TARGETS, help_text="All targets; left out, they stay."
    )

    def get_fields(self) -> dict[str, serializers.Field]:
        times = {
            name: serializers.FloatField(required=False, min_value=0.001, max_value=most)
            for name, most in TIMES.items()
        }
        return {**super().get_fields(), **times}

    def validate_targets(self, targets: list[dict[str, Any]]) -> list[TargetInput]:
        return [TargetInput(**target) for target in targets]


class RouteChangeSerializer(RouteInputSerializer):
    name = serializers.CharField(max_length=naming.LONGEST, required=False)


class PlaybookSerializer(serializers.Serializer):
    """One entry of the playbook's JSON, for each target."""

    model_name = serializers.CharField()
    provider = serializers.CharField()
    base_url = serializers.CharField(help_text="Ends in /v1.")
    max_tokens = serializers.IntegerField(required=False)
    timeout = serializers.FloatField(required=False, help_text="Seconds that a whole request may take.")


class ImportSerializer(StrictSerializer):
    routes = serializers.JSONField(help_text="The playbook's JSON as it stands: one object or a list.")
    replace = serializers.BooleanField(default=False, help_text="Overwrite limits and targets that differ.")


class ImportedSerializer(serializers.Serializer):
    created = serializers.ListField(child=serializers.CharField())
    changed = serializers.ListField(child=serializers.CharField())
    unchanged = serializers.ListField(child=serializers.CharField())
    notes = serializers.ListField(child=serializers.CharField())


class RouteFilter(django_filters.FilterSet):
    name = django_filters.CharFilter(method="by_name", label="name or alias")
    enabled = django_filters.BooleanFilter()
    engine = django_filters.NumberFilter("targets__engine_id", **_ID, label="id of an engine that serves it")

    class Meta:
        model = Route
        fields: ClassVar = []

    def by_name(self, routes: QuerySet[Route], name: str, value: str) -> QuerySet[Route]:
        return routes.filter(Q(name=value) | Q(aliases__contains=[value]))


@extend_schema_view(list=extend_schema(summary="List routes"), retrieve=extend_schema(summary="One route"))
class RouteViewSet(ReadViewSet):
    permissions: ClassVar = {
        "list": "route.view",
        "retrieve": "route.view",
        "export": "route.view",
        "create": "route.change",
        "partial_update": "route.change",
        "destroy": "route.change",
        "import_routes": "route.change",
    }
    queryset = Route.objects.all()
    serializer_class = RouteSerializer
    filterset_class = RouteFilter

    def get_queryset(self) -> QuerySet[Route]:
        return Route.objects.visible_to(self.request.user).with_targets()

    def _saved(self, route: Route | None, values: dict[str, Any], status: int) -> Response:
        targets = values.pop("targets", None)
        saved = SaveRoute(self.actor, route, values, targets).run()
        return Response(RouteSerializer(self.get_queryset().get(pk=saved.pk)).data, status=status)

    @extend_schema(summary="Make a route", request=RouteInputSerializer, responses={201: RouteSerializer})
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self._saved(None, self.body(RouteInputSerializer), 201)

    @extend_schema(
        summary="Change a route",
        description="What is left out stays. Requests under way are not touched.",
        request=RouteChangeSerializer,
        responses=RouteSerializer,
    )
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self._saved(self.get_object(), self.body(RouteChangeSerializer), 200)

    @extend_schema(summary="Remove a route", responses={204: None})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        RemoveRoute(self.actor, self.get_object()).run()
        return Response(status=204)

    @extend_schema(
        summary="Import the playbook's JSON",
        description="All of it or nothing. A route that exists and differs needs `replace`.",
        request=ImportSerializer,
        responses={200: ImportedSerializer},
    )
    @action(detail=False, methods=["post"], url_path="import")
    def import_routes(self, request: Request) -> Response:
        asked = self.body(ImportSerializer)
        done = ImportRoutes(self.actor, json.dumps(asked["routes"]), asked["replace"]).run()
        named = {
            name: [route.name for route in getattr(done, name)]
            for name in ("created", "changed", "unchanged")
        }
        return Response({**named, "notes": [note.text(gettext) for note in done.notes]})

    @extend_schema(
        summary="Export every route as the playbook's JSON",
        description="An entry for each target; api_key is left out.",
        responses=PlaybookSerializer(many=True),
        filters=False,
    )
    @action(detail=False, methods=["get"], pagination_class=None)
    def export(self, request: Request) -> Response:
        return Response(ExportRoutes(self.actor).run())
