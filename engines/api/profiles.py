"""Profiles and their revisions: how models are started."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from django.db.models import OuterRef, QuerySet, Subquery
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from engines.actions.archive_profile import ArchiveProfile
from engines.actions.restore_profile import RestoreProfile
from engines.actions.save_profile import SaveProfile
from engines.flag_lists import release_for
from engines.model_shapes import shape_of
from engines.models import Profile, Revision
from engines.vllm.command import display_command, masked_extra
from engines.vllm.masking import mask_environment
from engines.vllm.notes import Note, Unreadable
from engines.vllm.target import Target, judge
from engines.vllm.validate import read_spec
from kvadmin.api.base import ReadViewSet
from kvadmin.api.serializers import EmptySerializer, StrictSerializer

_MASK = "•••"


class RevisionSerializer(serializers.ModelSerializer):
    served_names = serializers.ListField(child=serializers.CharField(), read_only=True)
    values = serializers.DictField(read_only=True, help_text="Field to value; absent is vLLM's default.")
    environment = serializers.SerializerMethodField(help_text="Plain variables; what looks secret is masked.")
    secret_names = serializers.SerializerMethodField(help_text="Variables whose values are never shown.")
    extra_arguments = serializers.SerializerMethodField(help_text="As written; what looks secret is masked.")
    command = serializers.SerializerMethodField(
        help_text="The command that would run, secrets masked; empty if it cannot be built."
    )
    created_by = serializers.CharField(
        source="created_by.username", default=None, read_only=True, allow_null=True
    )

    class Meta:
        model = Revision
        fields = [
            "id",
            "number",
            "model",
            "served_names",
            "values",
            "gpus",
            "environment",
            "secret_names",
            "extra_arguments",
            "command",
            "note",
            "created_by",
            "created_at",
        ]
        read_only_fields = fields

    def get_environment(self, revision: Revision) -> dict[str, str]:
        return mask_environment(dict(revision.environment))

    def get_secret_names(self, revision: Revision) -> list[str]:
        return sorted(revision.readable_secrets)

    def get_extra_arguments(self, revision: Revision) -> str:
        return masked_extra(revision.shown_spec)

    def get_command(self, revision: Revision) -> str:
        try:
            return display_command(revision.shown_spec)
        except Unreadable:
            return ""


class ProfileSerializer(serializers.ModelSerializer):
    latest_number = serializers.IntegerField(read_only=True, allow_null=True)
    model = serializers.CharField(read_only=True, allow_null=True, help_text="Of the newest revision.")

    class Meta:
        model = Profile
        fields = ["id", "name", "description", "latest_number", "model", "archived_at", "created_at"]
        read_only_fields = fields


def finding_as_json(note: Note) -> dict[str, Any]:
    return {
        "severity": str(note.severity),
        "code": note.code,
        "field": note.field,
        "text": note.text(gettext),
        "mends": [{"label": mend.text(gettext), "sets": dict(mend.sets)} for mend in note.mends],
    }


class ProfileDetailSerializer(ProfileSerializer):
    latest = RevisionSerializer(read_only=True, allow_null=True)

    class Meta(ProfileSerializer.Meta):
        fields = [*ProfileSerializer.Meta.fields, "latest"]
        read_only_fields = fields


class SpecSerializer(StrictSerializer):
    model = serializers.CharField(max_length=500, help_text="A name on Hugging Face or a folder on the host.")
    served_names = serializers.ListField(
        child=serializers.CharField(max_length=300), default=list, max_length=20
    )
    values = serializers.DictField(
        default=dict, help_text=_('Parameters of vLLM, such as max_model_len: 32768 or "32k".')
    )
    gpus = serializers.CharField(
        default="", allow_blank=True, max_length=100, help_text="0,1 or 0-3 or empty."
    )
    environment = serializers.DictField(
        child=serializers.CharField(allow_blank=True, max_length=10_000), default=dict
    )
    secrets = serializers.DictField(
        child=serializers.CharField(allow_null=True, allow_blank=True, max_length=10_000),
        default=dict,
        write_only=True,
        help_text="Variables whose values are never shown again; null keeps the stored one.",
    )
    extra_arguments = serializers.CharField(
        default="", allow_blank=True, max_length=10_000, help_text="Further arguments, as in a shell."
    )


class NewRevisionSerializer(SpecSerializer):
    note = serializers.CharField(default="", allow_blank=True, max_length=300)
    based_on = serializers.IntegerField(
        default=None,
        allow_null=True,
        min_value=1,
        max_value=2**31 - 1,
        help_text="The revision that you saw: refused with 409 when there is a newer one.",
    )


class NewProfileSerializer(SpecSerializer):
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(default="", allow_blank=True, max_length=10_000)
    note = serializers.CharField(default="", allow_blank=True, max_length=300)


class ProfileChangeSerializer(StrictSerializer):
    name = serializers.CharField(max_length=100, required=False)
    description = serializers.CharField(allow_blank=True, max_length=10_000, required=False)


class PreviewSerializer(SpecSerializer):
    vllm_version = serializers.CharField(
        default="",
        allow_blank=True,
        max_length=40,
        help_text="Check against this version and say the command as it takes it; empty: neither.",
    )


class MendSerializer(serializers.Serializer):
    label = serializers.CharField()
    sets = serializers.DictField(child=serializers.CharField(), help_text="Input to its new text.")


class FindingSerializer(serializers.Serializer):
    severity = serializers.ChoiceField(choices=["error", "warning", "info"])
    code = serializers.CharField()
    field = serializers.CharField(help_text="The input that it belongs to; empty for all of them.")
    text = serializers.CharField()
    mends = MendSerializer(many=True, help_text="Changes that settle it, the likeliest first.")


class CommandSerializer(serializers.Serializer):
    command = serializers.CharField(help_text="The command that would run, secrets masked.")
    flags_of = serializers.CharField(
        help_text="Whose flags it was checked against: an unknown version is judged by the nearest older one."
    )
    findings = FindingSerializer(
        many=True, help_text="What that version makes of it; an error keeps it from starting there."
    )
    notes = serializers.ListField(
        child=serializers.CharField(), help_text="What is worth knowing before it runs."
    )


class CompareQuery(serializers.Serializer):
    left = serializers.IntegerField(min_value=1, max_value=2**31 - 1, help_text="A revision's number.")
    right = serializers.IntegerField(min_value=1, max_value=2**31 - 1, help_text="A revision's number.")


class DifferenceSerializer(serializers.Serializer):
    field = serializers.CharField()
    left = serializers.JSONField(allow_null=True, help_text="null where it is not set.")
    right = serializers.JSONField(allow_null=True, help_text="null where it is not set.")


class ComparisonSerializer(serializers.Serializer):
    left = RevisionSerializer()
    right = RevisionSerializer()
    differences = DifferenceSerializer(many=True)


class ProfileFilter(django_filters.FilterSet):
    name = django_filters.CharFilter()
    archived = django_filters.BooleanFilter("archived_at", "isnull", exclude=True, label="archived")

    class Meta:
        model = Profile
        fields: ClassVar = []


@extend_schema_view(
    list=extend_schema(summary="List profiles"),
    retrieve=extend_schema(summary="One profile with its newest revision", responses=ProfileDetailSerializer),
)
class ProfileViewSet(ReadViewSet):
    permissions: ClassVar = {
        "list": "profile.view",
        "retrieve": "profile.view",
        "revisions": "profile.view",
        "revision": "profile.view",
        "compare": "profile.view",
        "preview_command": "profile.view",
        "create": "profile.change",
        "partial_update": "profile.change",
        "add_revision": "profile.change",
        "archive": "profile.change",
        "restore": "profile.change",
    }
    paged_actions: ClassVar = {"revisions"}
    queries: ClassVar = {"compare": CompareQuery}
    reading_actions: ClassVar = {"preview_command"}
    queryset = Profile.objects.all()
    serializer_class = ProfileSerializer
    filterset_class = ProfileFilter

    def get_queryset(self) -> QuerySet[Profile]:
        newest = Revision.objects.filter(profile=OuterRef("pk")).order_by("-number")
        return Profile.objects.visible_to(self.request.user).annotate(
            latest_number=Subquery(newest.values("number")[:1]), model=Subquery(newest.values("model")[:1])
        )

    def get_serializer_class(self) -> type[serializers.BaseSerializer]:
        return ProfileSerializer if self.action == "list" else ProfileDetailSerializer

    def _answer(self, profile: Profile, status: int = 200) -> Response:
        fresh = self.get_queryset().get(pk=profile.pk)
        return Response(ProfileDetailSerializer(fresh).data, status=status)

    @extend_schema(
        summary="Make a profile", request=NewProfileSerializer, responses={201: ProfileDetailSerializer}
    )
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self._answer(SaveProfile(self.actor, **self.body(NewProfileSerializer)).run(), 201)

    @extend_schema(
        summary="Rename or describe a profile",
        description="How the model is started changes by a new revision.",
        request=ProfileChangeSerializer,
        responses=ProfileDetailSerializer,
    )
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        profile = self.get_object()
        asked = self.body(ProfileChangeSerializer)
        given = {
            "name": asked.get("name", profile.name),
            "description": asked.get("description", profile.description),
            **_spec_of(profile.latest),
        }
        return self._answer(SaveProfile(self.actor, profile=profile, **given).run())

    @extend_schema(
        summary="List a profile's revisions, newest first", responses=RevisionSerializer(many=True)
    )
    @action(detail=True, methods=["get"])
    def revisions(self, request: Request, pk: str) -> Response:
        self.newest_first = True
        rows = self.get_object().revisions.select_related("created_by", "profile")
        return self.page(rows, RevisionSerializer)

    @extend_schema(
        summary="Save the next revision",
        description="What is the same as before makes no new revision: the answer is then 200.",
        request=NewRevisionSerializer,
        responses={201: RevisionSerializer, 200: RevisionSerializer},
    )
    @revisions.mapping.post
    def add_revision(self, request: Request, pk: str) -> Response:
        profile = self.get_object()
        save = SaveProfile(
            self.actor,
            profile=profile,
            name=profile.name,
            description=profile.description,
            **self.body(NewRevisionSerializer),
        )
        save.run()
        return Response(RevisionSerializer(profile.latest).data, status=201 if save.revision_made else 200)

    @extend_schema(summary="One revision", responses=RevisionSerializer)
    @action(detail=True, methods=["get"], url_path="revisions/(?P<number>[0-9]{1,9})")
    def revision(self, request: Request, pk: str, number: str) -> Response:
        return Response(RevisionSerializer(self._revision(self.get_object(), int(number))).data)

    @extend_schema(summary="Compare two revisions", responses=ComparisonSerializer)
    @action(detail=True, methods=["get"])
    def compare(self, request: Request, pk: str) -> Response:
        profile, asked = self.get_object(), self.query()
        sides = [self._revision(profile, asked[side]) for side in ("left", "right")]
        left, right = (RevisionSerializer(side).data for side in sides)
        return Response({"left": left, "right": right, "differences": differences(left, right)})

    @staticmethod
    def _revision(profile: Profile, number: int) -> Revision:
        rows = profile.revisions.select_related("created_by", "profile")
        return get_object_or_404(rows, number=min(number, 2**31 - 1))

    @extend_schema(
        summary="The command that would run",
        description="Nothing is saved. A read token may ask.",
        request=PreviewSerializer,
        responses=CommandSerializer,
    )
    @action(detail=False, methods=["post"], url_path="preview-command")
    def preview_command(self, request: Request) -> Response:
        asked = self.body(PreviewSerializer)
        version = asked.pop("vllm_version")
        asked["secrets"] = {name: value or _MASK for name, value in asked["secrets"].items()}
        reading = read_spec(**asked)
        errors: dict[str, list[str]] = {}
        for problem in reading.errors:
            errors.setdefault(problem.field or "request", []).append(problem.text(gettext))
        if errors:
            raise serializers.ValidationError(errors)
        notes = [note.text(gettext) for note in reading.others]
        release = release_for(version) if version else None
        findings = []
        if release is not None:
            target = Target("", release, shape=shape_of(reading.spec.model, None))
            findings = [finding_as_json(note) for note in judge(reading.spec, target).notes]
        return Response(
            {
                "command": display_command(reading.spec, release=release),
                "flags_of": release.read_from if release is not None else "",
                "findings": findings,
                "notes": notes,
            }
        )

    @extend_schema(
        summary="Archive a profile", request=EmptySerializer, responses={200: ProfileDetailSerializer}
    )
    @action(detail=True, methods=["post"])
    def archive(self, request: Request, pk: str) -> Response:
        self.body(EmptySerializer)
        return self._answer(ArchiveProfile(self.actor, self.get_object()).run())

    @extend_schema(
        summary="Bring an archived profile back",
        request=EmptySerializer,
        responses={200: ProfileDetailSerializer},
    )
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: str) -> Response:
        self.body(EmptySerializer)
        return self._answer(RestoreProfile(self.actor, self.get_object()).run())


def _spec_of(revision: Revision | None) -> dict[str, Any]:
    """A revision as SaveProfile takes it, the stored secrets kept."""
    if revision is None:
        return {"model": ""}
    return {
        "model": revision.model,
        "served_names": revision.served_names,
        "values": revision.values,
        "gpus": revision.gpus,
        "environment": revision.environment,
        "secrets": dict.fromkeys(revision.readable_secrets),
        "extra_arguments": revision.extra_arguments,
    }


def differences(left: dict[str, Any], right: dict[str, Any]) -> list[dict[str, Any]]:
    """What two serialized revisions start differently, a parameter or a variable each."""
    found = []
    for field in ("model", "served_names", "gpus", "secret_names", "extra_arguments"):
        if left[field] != right[field]:
            found.append({"field": field, "left": left[field], "right": right[field]})
    for group in ("values", "environment"):
        for key in sorted({*left[group], *right[group]}):
            one, other = left[group].get(key), right[group].get(key)
            if one != other:
                found.append({"field": f"{group}.{key}", "left": one, "right": other})
    return found
