"""The OpenAPI document: what every endpoint has in common, said once."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse

from kvadmin.api.idempotency import HEADER, REPLAYED
from kvadmin.api.problems import MEDIA_TYPE, problem_body
from kvadmin.api.serializers import ProblemSerializer

_WITH_BODY = {"POST", "PUT", "PATCH"}

_MEANINGS = {
    400: "Malformed, or a field, filter or parameter is wrong: `errors` names it.",
    401: "No credentials, or a token that is unknown, expired or revoked.",
    403: "The role or the token's scope does not allow it.",
    404: "There is no such thing, or it may not be seen.",
    406: "The header Accept asks for another format.",
    409: "Not possible in the present state; it may be later.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The Idempotency-Key was used for another request.",
    429: "Too many requests: Retry-After says how long to wait.",
    500: "kvadmin itself failed.",
    502: "The host could not be reached, or refused.",
}

_EXAMPLES = {
    400: problem_body(
        400,
        "invalid",
        "port: A valid integer is required.",
        "Correct what “errors” names and send the request again.",
        {"port": ["A valid integer is required."]},
    ),
    409: problem_body(
        409,
        "operation_active",
        "Start qwen3-8b is still under way.",
        "Wait until it ends, or cancel it first.",
    ),
}


class ManageSchema(AutoSchema):
    """Adds the problems that an operation may answer with, and Idempotency-Key to each POST."""

    def get_operation_id(self) -> str:
        return super().get_operation_id().removeprefix("api_manage_v1_").removeprefix("manage_v1_")

    def get_tags(self) -> list[str]:
        parts = [part for part in self.path.split("/") if part]
        return [parts[3] if len(parts) > 3 else "api"]

    def get_override_parameters(self) -> list[Any]:
        found = list(super().get_override_parameters())
        action = getattr(self.view, "action", None)
        query = getattr(self.view, "queries", {}).get(action)
        if query is not None:
            found.append(query)
        if self.method == "POST":
            found.append(
                OpenApiParameter(
                    HEADER,
                    str,
                    OpenApiParameter.HEADER,
                    description=(
                        "A text of your choice, 1 to 200 characters. A repeat with the same key and "
                        "body within 24 h gets the first answer and changes nothing."
                    ),
                )
            )
        return found

    def _statuses(self) -> list[int]:
        found = {400, 401, 403, 406, 429, 500}
        if "{" in self.path:
            found.add(404)
        if self.method not in {"GET", "HEAD"}:
            found.add(409)
        if self.method in _WITH_BODY:
            found |= {413, 415}
        if self.method == "POST":
            found.add(422)
        action = getattr(self.view, "action", None)
        if action in getattr(self.view, "reaches_host", set()):
            found.add(502)
        return sorted(found)

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        responses = super()._get_response_bodies(direction)
        if self.method == "POST":
            for status, response in responses.items():
                if status.startswith("2"):
                    response.setdefault("headers", {})[REPLAYED] = {
                        "description": "true when this is the stored answer of an earlier request.",
                        "schema": {"type": "string", "enum": ["true"]},
                    }
        for status in self._statuses():
            if str(status) in responses:
                continue
            example = _EXAMPLES.get(status)
            examples = [OpenApiExample(example["code"], example)] if example else []
            responses[str(status)] = self._get_response_for_code(
                OpenApiResponse(ProblemSerializer, _MEANINGS[status], examples),
                str(status),
                media_types=[MEDIA_TYPE],
            )
        return responses


class TokenScheme(OpenApiAuthenticationExtension):
    target_class = "kvadmin.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A management token, kvm_…, from the account page or manage.py token issue.",
        }


class SessionScheme(OpenApiAuthenticationExtension):
    target_class = "kvadmin.api.authentication.BrowserSession"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": "sessionid",
            "description": "The console's session; writing needs X-CSRFToken too.",
        }
