"""Engines: settings, and what is done with them."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from django.db.models import OuterRef, QuerySet, Subquery
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from engines.actions.change_engine import ChangeEngine
from engines.actions.create_engine import CreateEngine
from engines.actions.drain_engine import DrainEngine
from engines.actions.operate_engines import VERBS, EngineResult, OperateEngines
from engines.actions.remove_engine import RemoveEngine
from engines.actions.restart_engine import RestartEngine
from engines.actions.start_engine import StartEngine
from engines.actions.stop_engine import StopEngine
from engines.api.engine_log import LogQuery, LogSerializer, read_log
from engines.api.engine_metrics import (
    ReadingSerializer,
    SeriesQuery,
    SeriesSerializer,
    reading,
    series,
)
from engines.api.operations import OperationSerializer, OperationSummarySerializer
from engines.api.refs import (
    EnvironmentRefSerializer,
    HostRefSerializer,
    Known,
    RevisionRefSerializer,
    accepted,
)
from engines.choices import DesiredState, EngineState
from engines.models import (
    Engine,
    EngineStart,
    Host,
    Operation,
    Profile,
    Revision,
    Transition,
    VllmEnvironment,
)
from engines.vllm.masking import mask_arguments
from kvadmin.api.base import ReadViewSet
from kvadmin.api.problems import as_problem, problem_body
from kvadmin.api.serializers import ProblemSerializer, StrictSerializer
from kvadmin.models import User

_ID = {"min_value": 1, "max_value": 2**63 - 1}


class StartSerializer(serializers.ModelSerializer):
    revision = RevisionRefSerializer(read_only=True, allow_null=True)
    command = serializers.SerializerMethodField(help_text="The argument list, secrets masked.")
    facts = serializers.DictField(read_only=True, help_text="What the log told, such as the cache's size.")
    created_by = serializers.CharField(
        source="created_by.username", default=None, read_only=True, allow_null=True
    )

    class Meta:
        model = EngineStart
        fields = [
            "id",
            "number",
            "revision",
            "launcher",
            "unit",
            "directory",
            "log_path",
            "command",
            "pid",
            "vllm_version",
            "facts",
            "created_at",
            "created_by",
            "launched_at",
            "ready_at",
            "ended_at",
            "exit_status",
            "last_lines",
        ]
        read_only_fields = fields

    def get_command(self, start: EngineStart) -> list[str]:
        return mask_arguments([str(word) for word in start.command])


class TransitionSerializer(serializers.ModelSerializer):
    start = serializers.IntegerField(
        source="start.number", default=None, read_only=True, allow_null=True, help_text="Number of the start."
    )
    operation = serializers.UUIDField(source="operation.uuid", default=None, read_only=True, allow_null=True)

    class Meta:
        model = Transition
        fields = ["id", "at", "from_state", "to_state", "reason_code", "reason", "start", "operation"]
        read_only_fields = fields


class EngineSerializer(serializers.ModelSerializer):
    host = HostRefSerializer(read_only=True)
    revision = RevisionRefSerializer(read_only=True, allow_null=True)
    environment = EnvironmentRefSerializer(read_only=True, allow_null=True)
    state = serializers.ChoiceField(source="observed", choices=EngineState.choices, read_only=True)
    base_url = serializers.CharField(read_only=True, help_text="Where the gateway reaches it.")
    served_names = serializers.ListField(child=serializers.CharField(), read_only=True)
    pending_changes = serializers.ListField(
        child=serializers.CharField(), read_only=True, help_text="What a restart would change."
    )
    current_start = serializers.IntegerField(
        source="current_start.number", default=None, read_only=True, allow_null=True, help_text="Its number."
    )
    operation = serializers.UUIDField(
        source="operation_uuid", read_only=True, allow_null=True, help_text="What is being done with it now."
    )

    class Meta:
        model = Engine
        fields = [
            "id",
            "name",
            "host",
            "revision",
            "environment",
            "port",
            "bind_address",
            "base_url",
            "keep_running",
            "desired",
            "state",
            "state_at",
            "reason_code",
            "reason",
            "served_names",
            "max_model_len",
            "vllm_version",
            "pending_changes",
            "current_start",
            "operation",
            "polled_at",
            "answered_at",
            "created_at",
        ]
        read_only_fields = fields


class NewEngineSerializer(StrictSerializer):
    name = serializers.CharField(max_length=100)
    host = Known(queryset=Host.objects.all(), help_text="The host's id.")
    revision = Known(
        queryset=Revision.objects.select_related("profile"), required=False, help_text="The revision's id."
    )
    profile = Known(
        queryset=Profile.objects.all(),
        required=False,
        help_text="In place of revision: the profile whose newest revision is meant.",
    )
    environment = Known(
        queryset=VllmEnvironment.objects.all(),
        default=None,
        allow_null=True,
        help_text="The vLLM environment's id; by default the host's newest.",
    )
    port = serializers.IntegerField(
        default=None,
        allow_null=True,
        min_value=1,
        max_value=65535,
        help_text="By default a free one.",
    )
    bind_address = serializers.CharField(
        default="", allow_blank=True, max_length=255, help_text="By default where the gateway looks for it."
    )
    keep_running = serializers.BooleanField(default=False, help_text="Start it again after a reboot.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        profile = attrs.pop("profile", None)
        if ("revision" in attrs) == (profile is not None):
            raise serializers.ValidationError({"revision": [_("Give either “revision” or “profile”.")]})
        if profile is not None:
            attrs["revision"] = profile.latest
            if attrs["revision"] is None:
                raise serializers.ValidationError({"profile": [_("This profile has no revision yet.")]})
        return attrs


class EngineChangeSerializer(StrictSerializer):
    name = serializers.CharField(max_length=100, required=False)
    revision = Known(queryset=Revision.objects.select_related("profile"), required=False)
    environment = Known(queryset=VllmEnvironment.objects.all(), required=False)
    port = serializers.IntegerField(min_value=1, max_value=65535, required=False)
    bind_address = serializers.CharField(max_length=255, required=False)
    keep_running = serializers.BooleanField(required=False)


class RemoveQuery(serializers.Serializer):
    forget = serializers.BooleanField(
        default=False, help_text="Also when its host cannot be reached any more."
    )
    remove_files = serializers.BooleanField(
        default=False, help_text="Also remove its logs and start folders from the host, afterwards."
    )


class _Override(StrictSerializer):
    override = serializers.ListField(
        child=serializers.CharField(max_length=60),
        default=list,
        max_length=30,
        help_text="Checks that may fail; only those that are safe to override count.",
    )


class StartEngineSerializer(_Override):
    load_limit_s = serializers.IntegerField(
        default=None, allow_null=True, min_value=10, max_value=86_400, help_text="How long loading may take."
    )


class RestartEngineSerializer(_Override):
    pass


class StopEngineSerializer(StrictSerializer):
    grace_s = serializers.IntegerField(
        required=False, min_value=0, max_value=600, help_text="How long its requests may still take."
    )
    at_once = serializers.BooleanField(
        default=False, help_text="Do not wait for the requests of callers that reach it through a route."
    )


class DrainEngineSerializer(StrictSerializer):
    limit_s = serializers.IntegerField(
        required=False, min_value=0, max_value=86_400, help_text="After that it is stopped all the same."
    )


class OperateSerializer(_Override):
    engines = serializers.ListField(
        child=serializers.IntegerField(**_ID), min_length=1, max_length=1000, help_text="Engines' ids."
    )
    do = serializers.ChoiceField(choices=VERBS)


class OperateResultSerializer(serializers.Serializer):
    engine = serializers.IntegerField(help_text="The engine's id.")
    operation = OperationSummarySerializer(allow_null=True)
    problem = ProblemSerializer(allow_null=True, help_text="Why nothing was begun for it.")


class OperateResultsSerializer(serializers.Serializer):
    batch = serializers.UUIDField(help_text="Filter operations by it.")
    results = OperateResultSerializer(many=True)


class EngineFilter(django_filters.FilterSet):
    name = django_filters.CharFilter()
    host = django_filters.NumberFilter("host_id", **_ID, label="host's id")
    profile = django_filters.NumberFilter("revision__profile_id", **_ID, label="profile's id")
    revision = django_filters.NumberFilter("revision_id", **_ID, label="revision's id")
    state = django_filters.MultipleChoiceFilter("observed", choices=EngineState.choices)
    desired = django_filters.ChoiceFilter(choices=DesiredState.choices)
    served_name = django_filters.CharFilter("served_names", "contains", label="a name that callers use")

    class Meta:
        model = Engine
        fields: ClassVar = []


def engines_for(user: User) -> QuerySet[Engine]:
    """Engines that a person may see, with all that EngineSerializer shows."""
    active = Operation.objects.active().filter(engine=OuterRef("pk"))
    return (
        Engine.objects.visible_to(user)
        .select_related("host", "revision__profile", "environment", "current_start")
        .annotate(operation_uuid=Subquery(active.values("uuid")[:1]))
    )


@extend_schema_view(list=extend_schema(summary="List engines"), retrieve=extend_schema(summary="One engine"))
class EngineViewSet(ReadViewSet):
    permissions: ClassVar = {
        "list": "engine.view",
        "retrieve": "engine.view",
        "starts": "engine.view",
        "transitions": "engine.view",
        "metrics": "engine.view",
        "series": "engine.view",
        "log": "engine.log",
        "create": "engine.change",
        "partial_update": "engine.change",
        "destroy": "engine.change",
        "start": "engine.operate",
        "stop": "engine.operate",
        "drain": "engine.operate",
        "restart": "engine.operate",
        "operate": "engine.operate",
    }
    paged_actions: ClassVar = {"starts", "transitions"}
    queries: ClassVar = {"log": LogQuery, "series": SeriesQuery, "destroy": RemoveQuery}
    reaches_host: ClassVar = {"log"}
    queryset = Engine.objects.all()
    serializer_class = EngineSerializer
    filterset_class = EngineFilter

    def get_queryset(self) -> QuerySet[Engine]:
        return engines_for(self.request.user)

    def _answer(self, engine: Engine, status: int = 200) -> Response:
        return Response(EngineSerializer(self.get_queryset().get(pk=engine.pk)).data, status=status)

    @extend_schema(
        summary="Make an engine",
        description="It is stopped; nothing happens on the host.",
        request=NewEngineSerializer,
        responses={201: EngineSerializer},
    )
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self._answer(CreateEngine(self.actor, **self.body(NewEngineSerializer)).run(), 201)

    @extend_schema(
        summary="Change an engine",
        description="A new revision or environment takes effect at the next start; see `pending_changes`.",
        request=EngineChangeSerializer,
        responses=EngineSerializer,
    )
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        engine = self.get_object()
        return self._answer(ChangeEngine(self.actor, engine, **self.body(EngineChangeSerializer)).run())

    @extend_schema(summary="Forget an engine", responses={204: None})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        RemoveEngine(self.actor, self.get_object(), **self.query()).run()
        return Response(status=204)

    @extend_schema(
        summary="Start an engine", request=StartEngineSerializer, responses={202: OperationSerializer}
    )
    @action(detail=True, methods=["post"])
    def start(self, request: Request, pk: str) -> Response:
        engine = self.get_object()
        return accepted(StartEngine(self.actor, engine, **self.body(StartEngineSerializer)).run(), request)

    @extend_schema(
        summary="Stop an engine",
        description="One that callers reach through a route is drained first, unless at_once: the operation "
        "is that drain. While it is being started, the operation is the start, which is cancelled first.",
        request=StopEngineSerializer,
        responses={202: OperationSerializer},
    )
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: str) -> Response:
        engine = self.get_object()
        return accepted(StopEngine(self.actor, engine, **self.body(StopEngineSerializer)).run(), request)

    @extend_schema(
        summary="Let an engine finish its requests, then stop it",
        request=DrainEngineSerializer,
        responses={202: OperationSerializer},
    )
    @action(detail=True, methods=["post"])
    def drain(self, request: Request, pk: str) -> Response:
        engine = self.get_object()
        return accepted(DrainEngine(self.actor, engine, **self.body(DrainEngineSerializer)).run(), request)

    @extend_schema(
        summary="Stop an engine and start it with its present settings",
        request=RestartEngineSerializer,
        responses={202: OperationSerializer},
    )
    @action(detail=True, methods=["post"])
    def restart(self, request: Request, pk: str) -> Response:
        engine = self.get_object()
        return accepted(
            RestartEngine(self.actor, engine, **self.body(RestartEngineSerializer)).run(), request
        )

    @extend_schema(
        summary="Start, stop, drain or restart several",
        description="Side by side; an engine that refuses does not keep the others back.",
        request=OperateSerializer,
        responses={202: OperateResultsSerializer},
    )
    @action(detail=False, methods=["post"])
    def operate(self, request: Request) -> Response:
        asked = self.body(OperateSerializer)
        act = OperateEngines(
            self.actor, engine_ids=asked["engines"], do=asked["do"], override=asked["override"]
        )
        results = [self._result(one) for one in act.run()]
        return Response({"batch": act.batch, "results": results}, status=202)

    def _result(self, one: EngineResult) -> dict[str, Any]:
        problem = None
        if one.error is not None:
            found = as_problem(one.error, {})
            problem = problem_body(
                found.status_code, found.code, str(found.detail), found.remedy, found.errors
            )
        operation = OperationSummarySerializer(one.operation).data if one.operation else None
        return {"engine": one.engine_id, "operation": operation, "problem": problem}

    @extend_schema(summary="An engine's starts, newest first", responses=StartSerializer(many=True))
    @action(detail=True, methods=["get"])
    def starts(self, request: Request, pk: str) -> Response:
        self.newest_first = True
        rows = self.get_object().starts.select_related("revision__profile", "created_by")
        return self.page(rows, StartSerializer)

    @extend_schema(
        summary="How an engine's state moved, newest first", responses=TransitionSerializer(many=True)
    )
    @action(detail=True, methods=["get"])
    def transitions(self, request: Request, pk: str) -> Response:
        self.newest_first = True
        rows = self.get_object().transitions.select_related("start", "operation")
        return self.page(rows, TransitionSerializer)

    @extend_schema(summary="What an engine says now", responses=ReadingSerializer)
    @action(detail=True, methods=["get"])
    def metrics(self, request: Request, pk: str) -> Response:
        return Response(ReadingSerializer(reading(self.get_object())).data)

    @extend_schema(summary="An engine's metrics over time", responses=SeriesSerializer)
    @action(detail=True, methods=["get"], url_path="metrics/series")
    def series(self, request: Request, pk: str) -> Response:
        return Response(series(self.get_object(), self.query()))

    @extend_schema(
        summary="A piece of an engine's log",
        description="Read from the host by bytes; `next_offset` is where to read on.",
        responses=LogSerializer,
    )
    @action(detail=True, methods=["get"])
    def log(self, request: Request, pk: str) -> Response:
        return Response(read_log(self.get_object(), self.query()))
