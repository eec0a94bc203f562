"""Usage: what keys consumed, in sums over a span, by time and by what it was for."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from engines.api.refs import Known
from kvadmin.api.base import ManageViewSet
from kvadmin.models import Team
from routes.models import Business, Key, Route
from routes.usage import read
from routes.usage.read import Scope, Usage

#: the longest span for each step, so that an answer stays small
LONGEST = {"minute": timedelta(hours=6), "hour": timedelta(days=31), "day": timedelta(days=800)}
_BY = {
    "model": "model",
    "key": "key_id",
    "business": "business_id",
    "team": "team_id",
    "route": "route_id",
}
_SUMS = (
    "requests", "streamed", "failed_caller", "failed_gateway", "failed_engine", "prompt_tokens",
    "cached_tokens", "completion_tokens", "estimated_tokens",
)  # fmt: skip
_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class UsageQuery(serializers.Serializer):
    team = Known(queryset=Team.objects.all(), required=False, help_text="Of this team only: its id.")
    business = Known(queryset=Business.objects.all(), required=False, help_text="Of this business only.")
    key = Known(queryset=Key.objects.all(), required=False, help_text="Of this key only: its id.")
    route = Known(queryset=Route.objects.all(), required=False, help_text="Of this route only: its id.")
    since = serializers.DateTimeField(required=False, help_text="By default a day ago.")
    until = serializers.DateTimeField(required=False, help_text="By default now.")
    step = serializers.ChoiceField(choices=["minute", "hour", "day"], default="hour")
    by = serializers.ChoiceField(
        choices=sorted(_BY), default="model", help_text="What “by” is put together by."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        now = timezone.now()
        until: datetime = attrs.setdefault("until", now)
        since: datetime = attrs.setdefault("since", until - timedelta(days=1))
        longest = LONGEST[attrs["step"]]
        if since >= until:
            raise serializers.ValidationError({"since": [_("The span's end must be after its beginning.")]})
        if until - since > longest:
            raise serializers.ValidationError(
                {
                    "since": [
                        _("With step “%(step)s”, ask for at most %(hours)d hours at once.")
                        % {"step": attrs["step"], "hours": longest // timedelta(hours=1)}
                    ]
                }
            )
        return attrs


class PercentilesSerializer(serializers.Serializer):
    """Seconds, of answered requests; null without one."""

    def get_fields(self) -> dict[str, serializers.Field]:
        return {name: serializers.FloatField(allow_null=True) for name in _PERCENTILES}


class SumsSerializer(serializers.Serializer):
    mean_s = serializers.FloatField(allow_null=True, help_text="Of an answered request.")

    def get_fields(self) -> dict[str, serializers.Field]:
        sums = {name: serializers.IntegerField() for name in _SUMS}
        sums["estimated_tokens"].help_text = "How many of all tokens no engine counted to the end."
        return {**sums, **super().get_fields()}


class TotalSerializer(SumsSerializer):
    latency = PercentilesSerializer()
    first_byte = PercentilesSerializer()


class MomentSerializer(SumsSerializer):
    at = serializers.DateTimeField(help_text="When the minute, hour or day (UTC) began.")


class PartSerializer(SumsSerializer):
    of = serializers.JSONField(help_text="The model's name, or the id; 0 or empty where there was none.")


class ErrorSerializer(serializers.Serializer):
    layer = serializers.CharField(help_text="caller, gateway or engine.")
    code = serializers.CharField(allow_blank=True)
    requests = serializers.IntegerField()


@extend_schema_serializer(many=False)
class UsageSerializer(serializers.Serializer):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    total = TotalSerializer()
    series = MomentSerializer(many=True)
    by = PartSerializer(many=True)
    errors = ErrorSerializer(many=True)


def _sums(usage: Usage) -> dict[str, Any]:
    values = asdict(usage)
    return {**{name: values[name] for name in _SUMS}, "mean_s": usage.mean_s}


def _percentiles(at: Any) -> dict[str, float | None]:
    found = {name: at(q) for name, q in _PERCENTILES.items()}
    return {name: one.value if one is not None else None for name, one in found.items()}


class UsageViewSet(ManageViewSet):
    permissions: ClassVar = {"list": "gateway.use"}
    queries: ClassVar = {"list": UsageQuery}
    pagination_class = None
    filter_backends: ClassVar = []

    def query(self) -> dict[str, Any]:
        """Ids arrive as text here, and what may be seen depends on who asks."""
        given: dict[str, Any] = {}
        for name, text in self.request.query_params.items():
            number = text.isascii() and text.isdigit() and len(text) < 19
            given[name] = int(text) if name in {"team", "business", "key", "route"} and number else text
        serializer = UsageQuery(data=given, context=self.get_serializer_context())
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data

    def _scope(self, asked: dict[str, Any]) -> Scope:
        """What was asked for, and never more than the caller may see."""
        named = {name: asked[name].pk for name in ("team", "business", "key", "route") if name in asked}
        user = self.request.user
        if {"team", "business", "key"} & set(named) or user.may("team.view_all"):
            return Scope(**named)
        return Scope(**named, keys=list(Key.objects.visible_to(user).values_list("pk", flat=True)))

    @extend_schema(
        summary="Usage in sums",
        description="Of your teams' keys; of all of them for operators. Minutes old at most.",
        responses=UsageSerializer,
    )
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        asked = self.query()
        scope, since, until = self._scope(asked), asked["since"], asked["until"]
        total = read.total(scope, since, until)
        answer = {
            "since": since,
            "until": until,
            "total": {
                **_sums(total),
                "latency": _percentiles(total.latency_at),
                "first_byte": _percentiles(total.first_byte_at),
            },
            "series": [
                {"at": one.at, **_sums(one)} for one in read.by_time(scope, since, until, asked["step"])
            ],
            "by": [{"of": one.of, **_sums(one)} for one in read.by(_BY[asked["by"]], scope, since, until)],
            "errors": [asdict(error) for error in read.errors(scope, since, until)],
        }
        return Response(UsageSerializer(answer).data)
