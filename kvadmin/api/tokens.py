"""One's own management tokens."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kvadmin.actions.issue_token import IssueToken
from kvadmin.actions.revoke_token import RevokeToken
from kvadmin.api.base import ManageViewSet
from kvadmin.api.serializers import StrictSerializer
from kvadmin.models import ManagementToken
from kvadmin.models.token import TokenScope


class TokenSerializer(serializers.ModelSerializer):
    class Meta:
        model = ManagementToken
        fields = [
            "id",
            "name",
            "public_id",
            "scope",
            "created_at",
            "expires_at",
            "last_used_at",
            "revoked_at",
        ]
        read_only_fields = fields


class IssuedTokenSerializer(TokenSerializer):
    token = serializers.CharField(
        allow_null=True,
        read_only=True,
        help_text="The whole token. Only this answer has it; a repeat by Idempotency-Key has null.",
    )

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "token"]
        read_only_fields = fields


class NewTokenSerializer(StrictSerializer):
    name = serializers.CharField(max_length=100, help_text="What will use it.")
    scope = serializers.ChoiceField(choices=TokenScope.choices, default=TokenScope.READ)
    expires_at = serializers.DateTimeField(default=None, allow_null=True)


@extend_schema_view(
    list=extend_schema(summary="List your tokens"),
    retrieve=extend_schema(summary="One of your tokens"),
)
class TokenViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ManageViewSet):
    permissions: ClassVar = {
        "list": "token.own",
        "retrieve": "token.own",
        "create": "token.own",
        "destroy": "token.own",
    }
    queryset = ManagementToken.objects.all()
    serializer_class = TokenSerializer
    newest_first = True
    once = ("token",)

    def get_queryset(self) -> QuerySet[ManagementToken]:
        return ManagementToken.objects.filter(user_id=self.request.user.pk)

    @extend_schema(summary="Make a token", request=NewTokenSerializer, responses={201: IssuedTokenSerializer})
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        issued = IssueToken(self.actor, user=request.user, **self.body(NewTokenSerializer)).run()
        data = {**TokenSerializer(issued.token).data, "token": issued.secret}
        return Response(data, status=201)

    @extend_schema(summary="Revoke a token", responses={204: None})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        RevokeToken(self.actor, token=self.get_object()).run()
        return Response(status=204)
