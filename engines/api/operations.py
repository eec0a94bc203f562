"""Operations: what is being done, or was: steps, log, events, cancellation."""

from __future__ import annotations

import json
from typing import ClassVar

import django_filters
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from engines.actions.cancel_operation import CancelOperation
from engines.api.refs import EngineRefSerializer, HostRefSerializer
from engines.choices import OperationKind, OperationState
from engines.models import Operation, OperationLine, OperationStep
from kvadmin.api.base import ReadViewSet
from kvadmin.api.serializers import EmptySerializer
from kvadmin.numbers import whole_number
from kvadmin.sse import Event, Read, event_stream, last_event_id, still_allowed

#: lines that one look at an operation sends at most
_LINES = 500


class OperationStepSerializer(serializers.ModelSerializer):
    label = serializers.CharField(read_only=True, help_text="The step's name for people.")

    class Meta:
        model = OperationStep
        fields = ["position", "name", "label", "state", "detail", "attempts", "started_at", "finished_at"]
        read_only_fields = fields


class OperationSummarySerializer(serializers.ModelSerializer):
    host = HostRefSerializer(read_only=True)
    engine = EngineRefSerializer(read_only=True, allow_null=True)
    requested_by = serializers.CharField(
        source="requested_by.username", default=None, read_only=True, allow_null=True
    )
    parameters = serializers.DictField(read_only=True)
    progress = serializers.FloatField(
        read_only=True, allow_null=True, help_text="From 0 to 1; null when it cannot be told."
    )
    active = serializers.BooleanField(source="is_active", read_only=True)

    class Meta:
        model = Operation
        fields = [
            "uuid",
            "kind",
            "state",
            "active",
            "host",
            "engine",
            "batch",
            "requested_by",
            "source",
            "parameters",
            "progress",
            "progress_text",
            "code",
            "message",
            "remedy",
            "cancel_requested",
            "created_at",
            "started_at",
            "finished_at",
        ]
        read_only_fields = fields


class OperationSerializer(OperationSummarySerializer):
    steps = OperationStepSerializer(many=True, read_only=True)

    class Meta(OperationSummarySerializer.Meta):
        fields = [*OperationSummarySerializer.Meta.fields, "steps"]
        read_only_fields = fields


class OperationLineSerializer(serializers.ModelSerializer):
    class Meta:
        model = OperationLine
        fields = ["id", "at", "text"]
        read_only_fields = fields


class OperationFilter(django_filters.FilterSet):
    kind = django_filters.MultipleChoiceFilter(choices=OperationKind.choices)
    state = django_filters.MultipleChoiceFilter(choices=OperationState.choices)
    host = django_filters.NumberFilter("host_id", min_value=1, max_value=2**63 - 1, label="host's id")
    engine = django_filters.NumberFilter("engine_id", min_value=1, max_value=2**63 - 1, label="engine's id")
    batch = django_filters.UUIDFilter(label="operations begun together")
    since = django_filters.IsoDateTimeFilter("created_at", "gte", label="not begun before this time")

    class Meta:
        model = Operation
        fields: ClassVar = []


class EventStreamRenderer(BaseRenderer):
    """Stands for text/event-stream where the format is agreed on; the stream itself is not rendered."""

    media_type = "text/event-stream"
    format = "events"


@extend_schema_view(
    list=extend_schema(summary="List operations"),
    retrieve=extend_schema(summary="One operation with its steps", responses=OperationSerializer),
)
class OperationViewSet(ReadViewSet):
    permissions: ClassVar = {
        "list": "operation.view",
        "retrieve": "operation.view",
        "lines": "operation.view",
        "events": "operation.view",
        "cancel": "operation.cancel",
    }
    paged_actions: ClassVar = {"lines"}
    queryset = Operation.objects.all()
    serializer_class = OperationSummarySerializer
    filterset_class = OperationFilter
    newest_first = True
    lookup_field = "uuid"
    lookup_value_regex = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

    def get_queryset(self) -> QuerySet[Operation]:
        rows = Operation.objects.visible_to(self.request.user)
        rows = rows.select_related("host", "engine", "requested_by")
        return rows if self.action == "list" else rows.prefetch_related("steps")

    def get_serializer_class(self) -> type[serializers.BaseSerializer]:
        return OperationSummarySerializer if self.action == "list" else OperationSerializer

    @extend_schema(summary="An operation's log", responses=OperationLineSerializer(many=True))
    @action(detail=True, methods=["get"])
    def lines(self, request: Request, uuid: str) -> Response:
        self.newest_first = False
        return self.page(self.get_object().lines.all(), OperationLineSerializer)

    @extend_schema(
        summary="Cancel an operation",
        description="Asks for it: the operation ends as `cancelled` at its next step.",
        request=EmptySerializer,
        responses={202: OperationSerializer},
    )
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, uuid: str) -> Response:
        self.body(EmptySerializer)
        CancelOperation(self.actor, self.get_object()).run()
        return Response(OperationSerializer(self.get_object()).data, status=202)

    @extend_schema(
        summary="Follow an operation",
        description=(
            "Server-sent events: `operation` (the operation with its steps, at each change), `line` (a line "
            "of its log) and `end`. The id is the last line's: send it back as Last-Event-ID to resume."
        ),
        responses={(200, "text/event-stream"): OpenApiTypes.STR},
    )
    @action(detail=True, methods=["get"], renderer_classes=[EventStreamRenderer])
    def events(self, request: Request, uuid: str) -> StreamingHttpResponse:
        return follow(self.get_object(), request._request)


def follow(operation: Operation, request: HttpRequest) -> StreamingHttpResponse:
    """The events of an operation from where the client stopped, until it has ended."""
    line = whole_number(last_event_id(request)) or 0

    def read(cursor: tuple[int, str]) -> Read[tuple[int, str]]:
        line, shown = cursor
        # the state before the lines: what ends an operation is written together with its last lines
        now = (
            Operation.objects.filter(pk=operation.pk)
            .select_related("host", "engine", "requested_by")
            .prefetch_related("steps")
            .first()
        )
        if now is None:
            return Read(cursor, done=True)
        lines = list(OperationLine.objects.filter(operation_id=now.pk, pk__gt=line)[:_LINES])
        events = [
            Event({"at": one.at.isoformat(), "text": one.text}, name="line", id=str(one.pk)) for one in lines
        ]
        line = lines[-1].pk if lines else line
        state = JSONRenderer().render(OperationSerializer(now).data).decode()
        if state != shown:
            events.append(Event(json.loads(state), name="operation", id=str(line)))
        return Read((line, state), events, done=not now.is_active and len(lines) < _LINES)

    return event_stream(read, (line, ""), may_go_on=still_allowed(request, "operation.view"))
