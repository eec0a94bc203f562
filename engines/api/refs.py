"""Short forms in which one thing names another, and answers that several resources share."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.reverse import reverse

from engines.models import Engine, Host, Operation, Revision, VllmEnvironment
from engines.ssh.errors import HostError
from kvadmin.api.problems import Problem


class HostRefSerializer(serializers.ModelSerializer):
    class Meta:
        model = Host
        fields = ["id", "name"]
        read_only_fields = fields


class EngineRefSerializer(serializers.ModelSerializer):
    class Meta:
        model = Engine
        fields = ["id", "name"]
        read_only_fields = fields


class RevisionRefSerializer(serializers.ModelSerializer):
    profile_id = serializers.IntegerField(read_only=True)
    profile = serializers.CharField(source="profile.name", read_only=True)

    class Meta:
        model = Revision
        fields = ["id", "number", "profile_id", "profile", "model", "served_name"]
        read_only_fields = fields


class EnvironmentRefSerializer(serializers.ModelSerializer):
    class Meta:
        model = VllmEnvironment
        fields = ["id", "version", "path"]
        read_only_fields = fields


def accepted(operation: Operation, request: Any) -> Response:
    """202 with the operation that does it, and its address in Location."""
    from engines.api.operations import OperationSerializer

    address = reverse("manage:operation-detail", args=[operation.uuid], request=request)
    return Response(
        OperationSerializer(operation, context={"request": request}).data,
        status=202,
        headers={"Location": f"{address.rstrip('/')}/"},
    )


def host_problem(error: HostError) -> Problem:
    """502: the host could not be reached, or refused, while the caller waited."""
    return Problem(error.message, status=502, code=error.code, remedy=error.remedy)


class Known(serializers.PrimaryKeyRelatedField):
    """A thing named by its id, among those that the caller may see."""

    default_error_messages = {
        "does_not_exist": gettext_lazy("{pk_value} is the id of nothing that you may see."),
        "incorrect_type": gettext_lazy("Give the id: a whole number."),
    }

    def __init__(self, **kwargs: Any):
        self.model = kwargs.pop("model", None)
        super().__init__(**kwargs)

    def get_queryset(self) -> Any:
        queryset = super().get_queryset()
        request = self.context.get("request")
        if request is None or not hasattr(queryset, "visible_to"):
            return queryset
        return queryset.visible_to(request.user)

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, bool) or not isinstance(data, int) or not 0 < data < 2**63:
            raise serializers.ValidationError(_("Give the id: a whole number."), code="incorrect_type")
        return super().to_internal_value(data)
