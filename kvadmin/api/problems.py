"""Problem details (RFC 9457): the one shape of every error of the management API.

{"type", "title", "status", "detail", "code", "remedy", "errors"}: ``code`` is stable and for programs,
``detail`` and ``remedy`` are sentences for people, ``errors`` maps a field to its sentences.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404
from django.utils.translation import gettext as _
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from kvadmin.actions import ActionError
from kvadmin.crypto import SecretUnreadable

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
#: where a field's errors go that belong to the request as a whole
WHOLE = "request"


class Problem(exceptions.APIException):
    """A refusal that the API itself makes, complete with status, code and remedy."""

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        code: str,
        remedy: str = "",
        errors: dict[str, list[str]] | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(detail, code)
        self.status_code = status
        self.code = code
        self.remedy = remedy
        self.errors = errors or {}
        self.headers = headers or {}


def problem_body(
    status: int,
    code: str,
    detail: str,
    remedy: str = "",
    errors: Mapping[str, list[str]] | None = None,
) -> dict[str, Any]:
    return {
        "type": f"urn:kvadmin:problem:{code}",
        "title": _title(status),
        "status": status,
        "detail": detail,
        "code": code,
        "remedy": remedy,
        "errors": dict(errors or {}),
    }


def _title(status: int) -> str:
    titles = {
        400: _("The request is not valid"),
        401: _("Not signed in"),
        403: _("Not allowed"),
        404: _("Not found"),
        405: _("Method not allowed"),
        406: _("No such format"),
        409: _("Not possible now"),
        413: _("Request too large"),
        415: _("Content type not supported"),
        422: _("Not the same request"),
        429: _("Too many requests"),
        500: _("kvadmin failed"),
        502: _("The host did not do it"),
    }
    return titles.get(status) or HTTPStatus(status).phrase


class ProblemResponse(Response):
    """A problem is JSON, also where the address answers in another format."""

    @property
    def rendered_content(self) -> bytes:
        self["Content-Type"] = MEDIA_TYPE
        return JSONRenderer().render(self.data)


def problem_response(problem: Problem) -> Response:
    body = problem_body(
        problem.status_code, problem.code, str(problem.detail), problem.remedy, problem.errors
    )
    return ProblemResponse(body, status=problem.status_code, headers=problem.headers)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """DRF's hook: every exception of a view becomes a problem, also the unexpected ones."""
    problem = as_problem(error, context)
    header = getattr(error, "auth_header", None)
    if header:
        problem.headers.setdefault("WWW-Authenticate", header)
    return problem_response(problem)


def as_problem(error: Exception, context: dict[str, Any]) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, ActionError):
        return Problem(
            error.message,
            status=error.status,
            code=error.code,
            remedy=error.remedy,
            errors=getattr(error, "errors", None) or ({error.field: [error.message]} if error.field else {}),
        )
    if isinstance(error, exceptions.ValidationError):
        return _invalid(error)
    if isinstance(error, exceptions.APIException):
        return _refusal(error, context)
    if isinstance(error, Http404):
        return not_found()
    if isinstance(error, PermissionDenied):
        return _refusal(exceptions.PermissionDenied(), context)
    if isinstance(error, RequestDataTooBig):
        return Problem(
            _("The body of the request is larger than this server takes."),
            status=413,
            code="too_large",
            remedy=_("Send less at once."),
        )
    if isinstance(error, SuspiciousOperation):
        return Problem(_("The request is malformed."), status=400, code="malformed")
    if isinstance(error, SecretUnreadable):
        logger.error("%s", error)
        return Problem(str(error), status=500, code="secret_unreadable")
    logger.error("management API: unexpected %s", type(error).__name__, exc_info=error)
    return Problem(
        _("kvadmin itself failed while answering this request."),
        status=500,
        code="internal_error",
        remedy=_("The console's log has the details. Try again, and report it if it comes back."),
    )


def not_found() -> Problem:
    return Problem(
        _("There is nothing at this address, or you may not see it."),
        status=404,
        code="not_found",
        remedy=_("Check the address and the id; the list shows what you may see."),
    )


def _invalid(error: exceptions.ValidationError) -> Problem:
    errors: dict[str, list[str]] = {}
    for field, sentence in _flatten(error.detail):
        errors.setdefault(field or WHOLE, []).append(sentence)
    field, sentences = next(iter(errors.items()), (WHOLE, [""]))
    detail = sentences[0] if field == WHOLE else f"{field}: {sentences[0]}"
    return Problem(
        detail if len(errors) == 1 else _("Several fields are wrong."),
        status=400,
        code="invalid",
        remedy=_("Correct what “errors” names and send the request again."),
        errors=errors,
    )


def _flatten(detail: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(field, sentence) of DRF's nested details; a nested field is written a.b, an item a.0."""
    if isinstance(detail, Mapping):
        for key, value in detail.items():
            inner = "" if key == "non_field_errors" else str(key)
            yield from _flatten(value, ".".join(part for part in (path, inner) if part))
    elif isinstance(detail, list):
        for position, value in enumerate(detail):
            nested = isinstance(value, Mapping | list)
            if nested and not value:
                continue
            yield from _flatten(value, f"{path}.{position}".lstrip(".") if nested else path)
    else:
        yield path, str(detail)


def _refusal(error: exceptions.APIException, context: dict[str, Any]) -> Problem:
    """DRF's own exceptions, with kvadmin's codes and sentences."""
    status, headers, code, detail, remedy = error.status_code, {}, "error", str(error.detail), ""
    if isinstance(error, exceptions.NotAuthenticated):
        status, code = 401, "not_signed_in"
        detail = _("This request carries no credentials.")
        remedy = _("Send a management token as “Authorization: Bearer kvm_…”, or sign in to the console.")
    elif isinstance(error, exceptions.PermissionDenied):
        code, detail = "permission_denied", _("You may not do this.")
        remedy = _("Ask an administrator for a role that may.")
    elif isinstance(error, exceptions.NotFound):
        return not_found()
    elif isinstance(error, exceptions.MethodNotAllowed):
        code = "method_not_allowed"
        detail = _("This address does not take %(method)s.") % {"method": context["request"].method}
        remedy = _("The header “Allow” lists what it takes.")
    elif isinstance(error, exceptions.NotAcceptable):
        code = "not_acceptable"
        detail = _("This address does not answer in any format that the header “Accept” names.")
        remedy = _("Ask for application/json.")
    elif isinstance(error, exceptions.UnsupportedMediaType):
        code = "unsupported_media_type"
        detail = _("The body is of a type that is not understood here.")
        remedy = _("Send JSON with “Content-Type: application/json”.")
    elif isinstance(error, exceptions.Throttled):
        code, detail = "throttled", _("Too many requests in a short time.")
        wait = max(1, int(error.wait or 1))
        headers["Retry-After"] = str(wait)
        remedy = _("Wait %(seconds)d s and try again.") % {"seconds": wait}
    elif isinstance(error, exceptions.ParseError):
        code, remedy = "malformed", _("Send one JSON object.")
    return Problem(detail, status=status, code=code, remedy=remedy, headers=headers)
