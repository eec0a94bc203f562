"""Hosts: settings, first contact, and what is done on them."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from engines.actions.add_host import AddHost
from engines.actions.adopt_engine import AdoptEngine
from engines.actions.change_host import ChangeHost
from engines.actions.confirm_host_key import ConfirmHostKey
from engines.actions.contact_host import ContactHost
from engines.actions.discover_engines import DiscoverEngines
from engines.actions.probe_host import ProbeHost
from engines.actions.provision_vllm import SOURCES, VARIANTS, ProvisionVllm
from engines.actions.remove_host import RemoveHost
from engines.api.engines import EngineSerializer, engines_for
from engines.api.operations import OperationSerializer
from engines.api.refs import HostRefSerializer, Known, accepted
from engines.choices import HostAuth, HostKind, HostState, OperationKind, OperationState
from engines.models import GpuSample, Host, VllmEnvironment
from engines.ssh import keys
from kvadmin.api.base import ReadViewSet
from kvadmin.api.serializers import EmptySerializer, StrictSerializer


class HostSerializer(serializers.ModelSerializer):
    jump = HostRefSerializer(read_only=True, allow_null=True)
    model_dirs = serializers.ListField(child=serializers.CharField(), read_only=True)
    fingerprint = serializers.SerializerMethodField(help_text="Of the confirmed host key; empty before.")
    offered_fingerprint = serializers.SerializerMethodField(
        help_text="Of a key that the host shows and nobody has confirmed; empty when there is none."
    )

    class Meta:
        model = Host
        fields = [
            "id",
            "name",
            "kind",
            "address",
            "port",
            "username",
            "auth",
            "public_key",
            "jump",
            "service_address",
            "work_dir",
            "model_dirs",
            "index_url",
            "wheel_dir",
            "proxy",
            "state",
            "state_text",
            "fingerprint",
            "offered_fingerprint",
            "last_seen_at",
            "facts_at",
            "created_at",
            "updated_at",
        ]
        read_only_fields = fields

    def get_fingerprint(self, host: Host) -> str:
        return keys.fingerprint(host.host_key) if host.host_key else ""

    def get_offered_fingerprint(self, host: Host) -> str:
        return keys.fingerprint(host.offered_key) if host.offered_key else ""


class HostDetailSerializer(HostSerializer):
    facts = serializers.SerializerMethodField(
        help_text="What the last probe found: os, cpu, memory, disk, gpus, pythons, models."
    )

    class Meta(HostSerializer.Meta):
        fields = [*HostSerializer.Meta.fields, "facts"]
        read_only_fields = fields

    def get_facts(self, host: Host) -> dict[str, Any]:
        return {**host.facts, "gpu_note": host.gpu_note} if host.facts else {}


class _HostSettings(StrictSerializer):
    name = serializers.CharField(max_length=100)
    address = serializers.CharField(max_length=255, help_text="Host name or IP address, without port.")
    port = serializers.IntegerField(min_value=1, max_value=65535)
    username = serializers.CharField(max_length=64, help_text="The user to sign in as.")
    auth = serializers.ChoiceField(
        choices=HostAuth.choices, help_text="How to sign in; none is for this machine only."
    )
    private_key = serializers.CharField(
        write_only=True,
        trim_whitespace=False,
        max_length=20_000,
        help_text="Never shown again.",
    )
    passphrase = serializers.CharField(
        write_only=True, trim_whitespace=False, max_length=1000, help_text="Of the private key."
    )
    password = serializers.CharField(write_only=True, trim_whitespace=False, max_length=1000)
    generate_key = serializers.BooleanField(
        help_text="Make a key pair here; public_key is then the line for authorized_keys."
    )
    jump = Known(queryset=Host.objects.all(), allow_null=True, help_text="The jump host's id.")
    service_address = serializers.CharField(
        max_length=255, allow_blank=True, help_text="Where engines are reached; the address by default."
    )
    work_dir = serializers.CharField(max_length=255)
    model_dirs = serializers.ListField(child=serializers.CharField(max_length=255), max_length=50)
    index_url = serializers.CharField(max_length=255, allow_blank=True)
    wheel_dir = serializers.CharField(max_length=255, allow_blank=True)
    proxy = serializers.CharField(max_length=255, allow_blank=True)

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        for name, field in fields.items():
            field.required = name in self.wanted
        return fields

    wanted: ClassVar[set[str]] = set()


class NewHostSerializer(_HostSettings):
    kind = serializers.ChoiceField(choices=HostKind.choices)

    wanted: ClassVar = {"name"}


class HostChangeSerializer(_HostSettings):
    pass


class ConfirmKeySerializer(StrictSerializer):
    fingerprint = serializers.CharField(
        max_length=200, help_text="The fingerprint that you compared with the host's own."
    )
    replace = serializers.BooleanField(
        default=False, help_text="Has to be true when another key was confirmed before."
    )


class ProvisionSerializer(StrictSerializer):
    version = serializers.CharField(default="", max_length=40, allow_blank=True)
    variant = serializers.ChoiceField(choices=VARIANTS, default="cuda")
    source = serializers.ChoiceField(choices=SOURCES, default="index")
    python = serializers.CharField(default="", max_length=255, allow_blank=True)
    existing = serializers.CharField(
        default="",
        max_length=255,
        allow_blank=True,
        help_text="A folder that is a virtual environment already: it is registered, nothing is installed.",
    )
    despite_driver = serializers.BooleanField(default=False)


class EnvironmentSerializer(serializers.ModelSerializer):
    class Meta:
        model = VllmEnvironment
        fields = [
            "id",
            "path",
            "executable",
            "version",
            "python_version",
            "source",
            "usable",
            "note",
            "seen_at",
        ]
        read_only_fields = fields


class GpuSampleSerializer(serializers.ModelSerializer):
    class Meta:
        model = GpuSample
        fields = [
            "id",
            "taken_at",
            "index",
            "uuid",
            "memory_total_mib",
            "memory_used_mib",
            "utilization",
            "temperature",
            "power",
        ]
        read_only_fields = fields


class GpuSampleQuery(serializers.Serializer):
    index = serializers.IntegerField(
        required=False, min_value=0, max_value=32_767, help_text="One GPU's samples only."
    )
    since = serializers.DateTimeField(required=False, help_text="Not taken before this time.")


class DiscoveredSerializer(serializers.Serializer):
    """A vLLM server that runs on the host and is no engine."""

    pid = serializers.IntegerField()
    owner = serializers.CharField(help_text="Whose process it is.")
    command = serializers.ListField(
        child=serializers.CharField(), source="argv", help_text="The argument list, secrets masked."
    )
    address = serializers.CharField(allow_blank=True)
    port = serializers.IntegerField(allow_null=True)
    model = serializers.CharField(allow_blank=True)
    served_names = serializers.ListField(child=serializers.CharField())
    environment = serializers.CharField(allow_blank=True, help_text="The folder of its environment.")
    log_path = serializers.CharField(allow_blank=True)
    notes = serializers.ListField(child=serializers.CharField())


class DiscoverySerializer(serializers.Serializer):
    found_at = serializers.DateTimeField(allow_null=True, help_text="null before the first discovery.")
    servers = DiscoveredSerializer(many=True)


class AdoptSerializer(StrictSerializer):
    pid = serializers.IntegerField(min_value=1, max_value=2**31 - 1, help_text="One of the last discovery.")
    name = serializers.CharField(max_length=100, help_text="The engine's name.")
    api_key = serializers.CharField(
        default="",
        allow_blank=True,
        max_length=500,
        write_only=True,
        help_text="The server's own key, where its process does not tell it. Never shown again.",
    )


class HostFilter(django_filters.FilterSet):
    name = django_filters.CharFilter()
    kind = django_filters.ChoiceFilter(choices=HostKind.choices)
    state = django_filters.MultipleChoiceFilter(choices=HostState.choices)
    jump = django_filters.NumberFilter("jump_id", min_value=1, max_value=2**63 - 1, label="jump host's id")

    class Meta:
        model = Host
        fields: ClassVar = []


@extend_schema_view(
    list=extend_schema(summary="List hosts"),
    retrieve=extend_schema(
        summary="One host, with what its last probe found", responses=HostDetailSerializer
    ),
)
class HostViewSet(ReadViewSet):
    permissions: ClassVar = {
        "list": "host.view",
        "retrieve": "host.view",
        "environments": "host.view",
        "create": "host.change",
        "partial_update": "host.change",
        "destroy": "host.change",
        "confirm_key": "host.change",
        "contact": "host.operate",
        "probe": "host.operate",
        "provision": "host.operate",
        "discover": "host.operate",
        "discovered": "host.view",
        "gpu_samples": "host.view",
        "adopt": "engine.change",
    }
    paged_actions: ClassVar = {"environments", "gpu_samples"}
    queries: ClassVar = {"gpu_samples": GpuSampleQuery}
    queryset = Host.objects.all()
    serializer_class = HostSerializer
    filterset_class = HostFilter

    def get_queryset(self) -> QuerySet[Host]:
        rows = Host.objects.visible_to(self.request.user).select_related("jump")
        return rows.defer("facts") if self.action == "list" else rows

    def get_serializer_class(self) -> type[serializers.BaseSerializer]:
        return HostSerializer if self.action == "list" else HostDetailSerializer

    def _answer(self, host: Host, status: int = 200) -> Response:
        fresh = Host.objects.select_related("jump").get(pk=host.pk)
        return Response(HostDetailSerializer(fresh).data, status=status)

    @extend_schema(
        summary="Add a host",
        description=(
            "Over SSH it is contacted at once; its state is then `confirm`, and `offered_fingerprint` is to "
            "be compared and confirmed."
        ),
        request=NewHostSerializer,
        responses={201: HostDetailSerializer},
    )
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self._answer(AddHost(self.actor, **self.body(NewHostSerializer)).run(), 201)

    @extend_schema(
        summary="Change a host",
        description="Fields left out stay as they are, secrets too.",
        request=HostChangeSerializer,
        responses=HostDetailSerializer,
    )
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        host = self.get_object()
        return self._answer(ChangeHost(self.actor, host, **self.body(HostChangeSerializer)).run())

    @extend_schema(summary="Forget a host", description="Nothing is done on it.", responses={204: None})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        RemoveHost(self.actor, self.get_object()).run()
        return Response(status=204)

    @extend_schema(
        summary="Confirm the host key",
        description="Pins the key whose fingerprint you compared, then probes the host.",
        request=ConfirmKeySerializer,
        responses=HostDetailSerializer,
    )
    @action(detail=True, methods=["post"], url_path="confirm-key")
    def confirm_key(self, request: Request, pk: str) -> Response:
        host = self.get_object()
        return self._answer(ConfirmHostKey(self.actor, host, **self.body(ConfirmKeySerializer)).run())

    @extend_schema(
        summary="Test the connection",
        description="Waits for it. That a host cannot be reached is an answer too: see `state`.",
        request=EmptySerializer,
        responses=HostDetailSerializer,
    )
    @action(detail=True, methods=["post"])
    def contact(self, request: Request, pk: str) -> Response:
        self.body(EmptySerializer)
        return self._answer(ContactHost(self.actor, self.get_object()).run())

    @extend_schema(summary="Probe a host", request=EmptySerializer, responses={202: OperationSerializer})
    @action(detail=True, methods=["post"])
    def probe(self, request: Request, pk: str) -> Response:
        self.body(EmptySerializer)
        return accepted(ProbeHost(self.actor, self.get_object()).run(), request)

    @extend_schema(
        summary="Install a vLLM version on a host",
        request=ProvisionSerializer,
        responses={202: OperationSerializer},
    )
    @action(detail=True, methods=["post"])
    def provision(self, request: Request, pk: str) -> Response:
        host = self.get_object()
        return accepted(ProvisionVllm(self.actor, host, **self.body(ProvisionSerializer)).run(), request)

    @extend_schema(
        summary="Look for engines that kvadmin did not start",
        request=EmptySerializer,
        responses={202: OperationSerializer},
    )
    @action(detail=True, methods=["post"])
    def discover(self, request: Request, pk: str) -> Response:
        self.body(EmptySerializer)
        return accepted(DiscoverEngines(self.actor, self.get_object()).run(), request)

    @extend_schema(summary="What the last discovery found", responses=DiscoverySerializer)
    @action(detail=True, methods=["get"])
    def discovered(self, request: Request, pk: str) -> Response:
        last = (
            self.get_object()
            .operations.filter(kind=OperationKind.DISCOVER, state=OperationState.SUCCEEDED)
            .first()
        )
        servers = last.scratch.get("servers", []) if last is not None else []
        found = {"found_at": last.finished_at if last is not None else None, "servers": servers}
        return Response(DiscoverySerializer(found).data)

    @extend_schema(
        summary="Adopt a running vLLM server as an engine",
        description="Nothing is restarted.",
        request=AdoptSerializer,
        responses={201: EngineSerializer},
    )
    @action(detail=True, methods=["post"])
    def adopt(self, request: Request, pk: str) -> Response:
        engine = AdoptEngine(self.actor, self.get_object(), **self.body(AdoptSerializer)).run()
        return Response(EngineSerializer(engines_for(request.user).get(pk=engine.pk)).data, status=201)

    @extend_schema(summary="A host's vLLM environments", responses=EnvironmentSerializer(many=True))
    @action(detail=True, methods=["get"])
    def environments(self, request: Request, pk: str) -> Response:
        return self.page(self.get_object().environments.all(), EnvironmentSerializer)

    @extend_schema(
        summary="GPU memory and load over time, newest first", responses=GpuSampleSerializer(many=True)
    )
    @action(detail=True, methods=["get"], url_path="gpu-samples")
    def gpu_samples(self, request: Request, pk: str) -> Response:
        self.newest_first = True
        rows, asked = self.get_object().gpu_samples.all(), self.query()
        if "index" in asked:
            rows = rows.filter(index=asked["index"])
        if "since" in asked:
            rows = rows.filter(taken_at__gte=asked["since"])
        return self.page(rows, GpuSampleSerializer)
