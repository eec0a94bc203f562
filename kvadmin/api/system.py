"""What this kvadmin is."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kvadmin.api.base import ManageViewSet
from kvadmin.version import VERSION


class VersionSerializer(serializers.Serializer):
    kvadmin = serializers.CharField(help_text="kvadmin's own version.")
    api = serializers.CharField(help_text="The version of this API.")
    user = serializers.CharField(help_text="Who you are here.")
    role = serializers.CharField(help_text="Your role.")
    scope = serializers.CharField(allow_null=True, help_text="The scope of the token that was sent.")


class VersionViewSet(ManageViewSet):
    permissions: ClassVar = {"version": "account.own"}
    serializer_class = VersionSerializer
    pagination_class = None

    @extend_schema(summary="Versions, and who you are")
    def version(self, request: Request) -> Response:
        return Response(
            {
                "kvadmin": VERSION,
                "api": "v1",
                "user": request.user.get_username(),
                "role": request.user.role,
                "scope": getattr(request.auth, "scope", None),
            }
        )
