"""Keys: issued, bounded, rotated, revoked. A secret is in one answer only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import django_filters
from django.db.models import QuerySet
from django.utils.translation import gettext
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from engines.api.refs import Known
from kvadmin.api.base import ReadViewSet
from kvadmin.api.serializers import EmptySerializer, StrictSerializer
from routes.actions.change_key import ChangeKey
from routes.actions.disable_key import DisableKey
from routes.actions.enable_key import EnableKey
from routes.actions.import_key import ImportKey
from routes.actions.issue_key import IssuedKey, IssueKey
from routes.actions.key_input import LIMITS, MOST_ADDRESSES, MOST_MODELS
from routes.actions.revoke_key import RevokeKey
from routes.actions.rotate_key import DEFAULT_OVERLAP, LONGEST_OVERLAP, RotateKey
from routes.api.businesses import BusinessRefSerializer
from routes.api.teams import TeamRefSerializer
from routes.choices import KeyState
from routes.facts import warnings_of_key
from routes.models import Business, Key

_ID = {"min_value": 1, "max_value": 2**63 - 1}


class KeySerializer(serializers.ModelSerializer):
    business = BusinessRefSerializer(read_only=True)
    team = TeamRefSerializer(source="business.team", read_only=True)
    shown = serializers.CharField(source="masked", read_only=True, help_text="As it is shown: not usable.")
    state = serializers.ChoiceField(choices=KeyState.choices, read_only=True)
    models = serializers.ListField(
        child=serializers.CharField(), read_only=True, allow_null=True, help_text="Route names; null is all."
    )
    addresses = serializers.ListField(
        child=serializers.CharField(), read_only=True, help_text="Networks it may come from; none is all."
    )
    predecessor = serializers.IntegerField(source="predecessor_id", read_only=True, allow_null=True)
    successor = serializers.SerializerMethodField(help_text="The id of the key that replaces it.")
    expires_soon = serializers.BooleanField(read_only=True)
    safe_to_remove = serializers.BooleanField(
        read_only=True, help_text="It was replaced, its successor is in use, and it was quiet for a day."
    )
    created_by = serializers.CharField(
        source="created_by.username", default=None, read_only=True, allow_null=True
    )

    class Meta:
        model = Key
        fields = [
            "id",
            "name",
            "business",
            "team",
            "shown",
            "public_id",
            "imported",
            "state",
            "models",
            "expires_at",
            "addresses",
            *LIMITS,
            "disabled_at",
            "revoked_at",
            "predecessor",
            "successor",
            "overlap_ends_at",
            "expires_soon",
            "safe_to_remove",
            "created_by",
            "created_at",
            "last_used_at",
            "last_used_ip",
        ]
        read_only_fields = fields
        extra_kwargs: ClassVar = {"imported": {"help_text": "A secret from elsewhere."}}

    def get_successor(self, key: Key) -> int | None:
        successor = key.successor
        return successor.pk if successor is not None else None


class KeyDetailSerializer(KeySerializer):
    warnings = serializers.SerializerMethodField(help_text="What does not fit together, in sentences.")

    class Meta(KeySerializer.Meta):
        fields = [*KeySerializer.Meta.fields, "warnings"]
        read_only_fields = fields

    def get_warnings(self, key: Key) -> list[str]:
        return [note.text(gettext) for note in warnings_of_key(key)]


class IssuedKeySerializer(KeyDetailSerializer):
    secret = serializers.CharField(
        allow_null=True,
        read_only=True,
        help_text="The whole key. Only this answer has it; a repeat by Idempotency-Key has null.",
    )

    class Meta(KeyDetailSerializer.Meta):
        fields = [*KeyDetailSerializer.Meta.fields, "secret"]
        read_only_fields = fields


def _bounds(*, required: bool) -> dict[str, serializers.Field]:
    """The fields of a key's bounds: with defaults, or each left out where it is to stay."""

    def given(default: Any) -> dict[str, Any]:
        return {"default": default} if required else {"required": False}

    limits = {
        name: serializers.IntegerField(
            min_value=1, max_value=most, allow_null=True, help_text="null is no limit.", **given(None)
        )
        for name, most in LIMITS.items()
    }
    return {
        "models": serializers.ListField(
            child=serializers.CharField(max_length=200),
            allow_null=True,
            min_length=1,
            max_length=MOST_MODELS,
            help_text="Route names; null is all.",
            **given(None),
        ),
        "expires_at": serializers.DateTimeField(allow_null=True, **given(None)),
        "addresses": serializers.ListField(
            child=serializers.CharField(max_length=60),
            max_length=MOST_ADDRESSES,
            help_text="Addresses and networks, IPv4 and IPv6; none is all.",
            **given(list),
        ),
        **limits,
    }


class _NewKey(StrictSerializer):
    business = Known(queryset=Business.objects.all(), help_text="The business's id.")
    name = serializers.CharField(max_length=100, help_text="Where it will be used.")

    def get_fields(self) -> dict[str, serializers.Field]:
        return {**super().get_fields(), **_bounds(required=True)}


class NewKeySerializer(_NewKey):
    pass


class ImportedKeySerializer(_NewKey):
    secret = serializers.CharField(
        max_length=2000, trim_whitespace=False, write_only=True, help_text="The secret that callers send."
    )


class KeyChangeSerializer(StrictSerializer):
    name = serializers.CharField(max_length=100, required=False)
    overlap_ends_at = serializers.DateTimeField(
        required=False, allow_null=True, help_text="Of a replaced key: until when it works."
    )

    def get_fields(self) -> dict[str, serializers.Field]:
        return {**super().get_fields(), **_bounds(required=False)}


class RotateSerializer(StrictSerializer):
    overlap_s = serializers.IntegerField(
        default=int(DEFAULT_OVERLAP.total_seconds()),
        min_value=0,
        max_value=int(LONGEST_OVERLAP.total_seconds()),
        help_text="Seconds in which both keys work.",
    )
    expires_at = serializers.DateTimeField(
        default=None, allow_null=True, help_text="By default as long as the old key was issued for."
    )


class KeyFilter(django_filters.FilterSet):
    business = django_filters.NumberFilter("business_id", **_ID, label="business's id")
    team = django_filters.NumberFilter("business__team_id", **_ID, label="team's id")
    name = django_filters.CharFilter()
    public_id = django_filters.CharFilter()
    usable = django_filters.BooleanFilter(method="by_usable", label="whether the gateway takes it now")
    expires_soon = django_filters.BooleanFilter(method="by_expires_soon", label="within 14 days")

    class Meta:
        model = Key
        fields: ClassVar = []

    def by_usable(self, keys: QuerySet[Key], name: str, value: bool) -> QuerySet[Key]:
        usable = Key.objects.usable().values("pk")
        return keys.filter(pk__in=usable) if value else keys.exclude(pk__in=usable)

    def by_expires_soon(self, keys: QuerySet[Key], name: str, value: bool) -> QuerySet[Key]:
        soon = Key.objects.expiring_soon().values("pk")
        return keys.filter(pk__in=soon) if value else keys.exclude(pk__in=soon)


@extend_schema_view(
    list=extend_schema(summary="List keys, newest first"),
    retrieve=extend_schema(summary="One key", responses=KeyDetailSerializer),
)
class KeyViewSet(ReadViewSet):
    permissions: ClassVar = dict.fromkeys(
        (
            "list", "retrieve", "create", "import_secret", "partial_update", "disable", "enable", "rotate",
            "revoke",
        ),
        "gateway.use",
    )  # fmt: skip
    queryset = Key.objects.all()
    serializer_class = KeySerializer
    filterset_class = KeyFilter
    newest_first = True
    once = ("secret",)

    def get_queryset(self) -> QuerySet[Key]:
        return (
            Key.objects.visible_to(self.request.user)
            .select_related("business__team", "created_by")
            .prefetch_related("successors")
        )

    def get_serializer_class(self) -> type[serializers.BaseSerializer]:
        return KeySerializer if self.action == "list" else KeyDetailSerializer

    def _answer(self, key: Key, status: int = 200) -> Response:
        return Response(KeyDetailSerializer(self.get_queryset().get(pk=key.pk)).data, status=status)

    def _issued(self, issued: IssuedKey) -> Response:
        fresh = self.get_queryset().get(pk=issued.key.pk)
        return Response({**KeyDetailSerializer(fresh).data, "secret": issued.secret}, status=201)

    @extend_schema(
        summary="Issue a key",
        description="By an owner of the business's team. It works within a second.",
        request=NewKeySerializer,
        responses={201: IssuedKeySerializer},
    )
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self._issued(IssueKey(self.actor, **self.body(NewKeySerializer)).run())

    @extend_schema(
        summary="Take over an existing secret",
        description="Only its digest is kept. A weak one is refused with the reasons.",
        request=ImportedKeySerializer,
        responses={201: KeyDetailSerializer},
    )
    @action(detail=False, methods=["post"], url_path="import")
    def import_secret(self, request: Request) -> Response:
        return self._answer(ImportKey(self.actor, **self.body(ImportedKeySerializer)).run(), 201)

    @extend_schema(
        summary="Change a key's bounds",
        description="What is left out stays. The change holds within a second.",
        request=KeyChangeSerializer,
        responses=KeyDetailSerializer,
    )
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        key = self.get_object()
        return self._answer(ChangeKey(self.actor, key, self.body(KeyChangeSerializer)).run())

    @extend_schema(summary="Disable a key", request=EmptySerializer, responses={200: KeyDetailSerializer})
    @action(detail=True, methods=["post"])
    def disable(self, request: Request, pk: str) -> Response:
        self.body(EmptySerializer)
        return self._answer(DisableKey(self.actor, self.get_object()).run())

    @extend_schema(summary="Enable a key", request=EmptySerializer, responses={200: KeyDetailSerializer})
    @action(detail=True, methods=["post"])
    def enable(self, request: Request, pk: str) -> Response:
        self.body(EmptySerializer)
        return self._answer(EnableKey(self.actor, self.get_object()).run())

    @extend_schema(
        summary="Rotate a key",
        description="The answer is its successor, with the same bounds; both work during the overlap.",
        request=RotateSerializer,
        responses={201: IssuedKeySerializer},
    )
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        asked = self.body(RotateSerializer)
        overlap = timedelta(seconds=asked["overlap_s"])
        return self._issued(RotateKey(self.actor, self.get_object(), overlap, asked["expires_at"]).run())

    @extend_schema(
        summary="Revoke a key",
        description="At once and for good.",
        request=EmptySerializer,
        responses={200: KeyDetailSerializer},
    )
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        self.body(EmptySerializer)
        return self._answer(RevokeKey(self.actor, self.get_object()).run())
