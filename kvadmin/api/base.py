"""The base of every view of the management API."""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.exceptions import RequestDataTooBig
from django.utils.translation import gettext as _
from rest_framework import mixins, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from kvadmin.actions import Actor
from kvadmin.api import idempotency
from kvadmin.api.actors import actor_of_call
from kvadmin.api.names import unknown_name
from kvadmin.api.problems import Problem
from kvadmin.models import IdempotencyRecord

_WITH_BODY = {"POST", "PUT", "PATCH"}


class ManageViewSet(viewsets.GenericViewSet):
    """Reads through ``visible_to`` querysets, changes through actions; nothing else.

    ``permissions`` names the permission of each action (``list``, ``create``, ``start``, …), ``queries``
    the serializer of its query parameters. Parameters and fields that nobody asked for are refused by
    name. ``once`` names answer fields that must not be stored for a repeat.
    """

    permissions: ClassVar[dict[str, str | None]] = {}
    queries: ClassVar[dict[str, type[serializers.Serializer]]] = {}
    #: POST actions that change nothing: a read token is enough
    reading_actions: ClassVar[set[str]] = set()
    #: actions besides ``list`` that answer in pages
    paged_actions: ClassVar[set[str]] = set()
    newest_first: ClassVar[bool] = False
    once: ClassVar[tuple[str, ...]] = ()
    lookup_value_regex = "[0-9]{1,18}"

    _record: IdempotencyRecord | None = None

    @property
    def actor(self) -> Actor:
        return actor_of_call(self.request)

    def permission_needed(self) -> str | None:
        """The permission of the present action; a method that is not served (405) needs none."""
        return self.permissions[self.action] if self.served else None

    @property
    def served(self) -> bool:
        """Whether the request's method leads to an action."""
        return self.action is not None and self.action != "metadata"

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method in _WITH_BODY:
            # before anything looks at the data: a body that was streamed cannot be read again
            self._refuse_large_body(request)
        super().initial(request, *args, **kwargs)
        if not self.served:
            return
        self._refuse_unknown_parameters(request)
        if request.method == "POST":
            self._record = idempotency.claim(request)
            if self._record is not None:
                handler = getattr(self, self.action)
                self.post = idempotency.answer_once(self._record, handler, self.once)

    def _refuse_large_body(self, request: Request) -> None:
        try:
            _length = len(request.body)
        except RequestDataTooBig:
            raise Problem(
                _("The body of the request is larger than this server takes."),
                status=413,
                code="too_large",
                remedy=_("Send less at once."),
            ) from None

    def _refuse_unknown_parameters(self, request: Request) -> None:
        known = self.known_parameters()
        errors = {
            name: [unknown_name(name, known, _("There is no parameter “%(name)s” here."))]
            for name in request.query_params
            if name not in known
        }
        if errors:
            raise serializers.ValidationError(errors)

    def known_parameters(self) -> set[str]:
        known: set[str] = set()
        if self.action in self.queries:
            known |= set(self.queries[self.action]().fields)
        if self.paginator is not None and (self.action == "list" or self.action in self.paged_actions):
            known |= set(self.paginator.parameters)
        if self.action == "list":
            filterset = getattr(self, "filterset_class", None)
            known |= set(filterset.base_filters) if filterset else set()
        return known

    def query(self) -> dict[str, Any]:
        """The checked query parameters of the present action."""
        names = set(self.queries[self.action]().fields)
        given = {name: text for name, text in self.request.query_params.items() if name in names}
        serializer = self.queries[self.action](data=given)
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data

    def body(self, serializer_class: type[serializers.BaseSerializer] | None = None, **kwargs: Any) -> Any:
        """The checked body, as values for an action."""
        make = serializer_class or self.get_serializer_class()
        serializer = make(data=self.request.data, context=self.get_serializer_context(), **kwargs)
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data

    def page(self, queryset: Any, serializer_class: type[serializers.BaseSerializer]) -> Response:
        rows = self.paginate_queryset(queryset)
        data = serializer_class(rows, many=True, context=self.get_serializer_context()).data
        return self.get_paginated_response(data)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, idempotency.Replay):
            return exc.response
        response = super().handle_exception(exc)
        if self._record is not None:
            idempotency.store(self._record, response)
        return response

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        response = super().finalize_response(request, response, *args, **kwargs)
        response.headers.setdefault("Cache-Control", "no-store")
        return response


class ReadViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ManageViewSet):
    """List and retrieve."""


class NotHere(ManageViewSet):
    """Every address under the API that is none: a problem, not a page."""

    schema = None
    permission_classes: ClassVar[list[type]] = []
    throttle_classes: ClassVar[list[type]] = []

    def known_parameters(self) -> set[str]:
        return set(self.request.query_params)

    def answer(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        from kvadmin.api.problems import not_found

        raise not_found()
