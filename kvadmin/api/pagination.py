"""Pages by keyset: stable while rows come and go, as quick on the thousandth page as on the first."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response

from kvadmin.api.problems import Problem

_CURSOR = re.compile(r"(?P<side>[ab])(?P<id>[0-9]{1,18})")


class KeysetPagination(BasePagination):
    """``?limit=`` (1 to 200) and ``?cursor=``, an opaque place. Ordered by id; the view's
    ``newest_first`` turns the order around. Answers ``next``, ``previous`` (addresses or null), ``results``.
    """

    parameters = ("limit", "cursor")
    default_limit = 50
    max_limit = 200

    def paginate_queryset(self, queryset: QuerySet, request: Request, view: Any = None) -> list[Any]:
        self.request = request
        limit = self._limit(request)
        descending = bool(getattr(view, "newest_first", False))
        side, place = self._cursor(request)
        backwards = side == "b"
        if place is not None:
            below = backwards != descending
            queryset = queryset.filter(**{"pk__lt" if below else "pk__gt": place})
        rows = list(queryset.order_by("-pk" if backwards != descending else "pk")[: limit + 1])
        more = len(rows) > limit
        rows = rows[:limit]
        if backwards:
            rows.reverse()
        self.has_next = bool(rows) and (more or backwards)
        self.has_previous = bool(rows) and (more if backwards else place is not None)
        self.first, self.last = (rows[0].pk, rows[-1].pk) if rows else (None, None)
        return rows

    def _limit(self, request: Request) -> int:
        text = request.query_params.get("limit")
        if text is None:
            return self.default_limit
        if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= self.max_limit:
            sentence = _("“limit” is a number from 1 to %(most)d.") % {"most": self.max_limit}
            raise Problem(sentence, status=400, code="invalid", errors={"limit": [sentence]})
        return int(text)

    def _cursor(self, request: Request) -> tuple[str, int | None]:
        text = request.query_params.get("cursor")
        if text is None:
            return "a", None
        try:
            plain = base64.urlsafe_b64decode(text.encode("ascii") + b"==").decode("ascii")
        except (ValueError, binascii.Error):
            plain = ""
        found = _CURSOR.fullmatch(plain)
        if found is None:
            sentence = _("This “cursor” was not made by this server.")
            raise Problem(
                sentence,
                status=400,
                code="invalid",
                remedy=_("Take the address in “next” or “previous” as it is, or begin without a cursor."),
                errors={"cursor": [sentence]},
            )
        return found["side"], int(found["id"])

    def _link(self, side: str, place: int) -> str:
        cursor = base64.urlsafe_b64encode(f"{side}{place}".encode()).decode().rstrip("=")
        query = {name: value for name, value in self.request.query_params.items() if name != "cursor"}
        return self.request.build_absolute_uri(
            f"{self.request.path}?{urlencode({**query, 'cursor': cursor})}"
        )

    def get_paginated_response(self, data: list[Any]) -> Response:
        return Response(
            {
                "next": self._link("a", self.last) if self.has_next else None,
                "previous": self._link("b", self.first) if self.has_previous else None,
                "results": data,
            }
        )

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": "string", "format": "uri", "nullable": True}
        return {
            "type": "object",
            "required": ["next", "previous", "results"],
            "properties": {
                "next": {**link, "description": "The address of the next page; null on the last."},
                "previous": {**link, "description": "The address of the page before; null on the first."},
                "results": schema,
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": "limit",
                "in": "query",
                "description": "How many rows a page has.",
                "schema": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": self.max_limit,
                    "default": self.default_limit,
                },
            },
            {
                "name": "cursor",
                "in": "query",
                "description": "A place in the list, taken from next or previous.",
                "schema": {"type": "string"},
            },
        ]
