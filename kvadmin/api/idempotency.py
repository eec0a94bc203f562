"""Idempotency-Key: a repeated POST gets the first one's answer and does nothing again.

A key belongs to a person and an address and is kept for 24 h. The answer is stored in the transaction
of the change itself, so a crash in between leaves neither. What may succeed later (409, 429) and what
went wrong here (5xx) is not stored: a repeat tries again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response

from kvadmin.actions.base import one_transaction
from kvadmin.api.problems import Problem, ProblemResponse
from kvadmin.models import IdempotencyRecord

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEPT = timedelta(hours=24)
#: a first request that is silent for longer than this has died
ABANDONED = timedelta(minutes=5)
_LONGEST = 200


class Replay(Exception):
    """The stored answer of an earlier request with the same key."""

    def __init__(self, response: Response):
        super().__init__()
        self.response = response


def claim(request: Request) -> IdempotencyRecord | None:
    """The record that this request has to fill; None without the header.

    Raises Replay when it was answered before, Problem when the key is in use or was used otherwise.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not 1 <= len(key) <= _LONGEST or not key.isprintable() or not key.isascii():
        raise Problem(
            _("The header “Idempotency-Key” is 1 to %(most)d printable ASCII characters.")
            % {"most": _LONGEST},
            status=400,
            code="idempotency_key_invalid",
            remedy=_("Use a UUID, a new one for each thing to be made."),
        )
    wanted = {
        "user_id": request.user.pk,
        "key": key,
        "path": request.path[:_LONGEST],
    }
    made = request_digest(request)
    old = timezone.now() - KEPT
    IdempotencyRecord.objects.filter(**wanted, created_at__lt=old).delete()
    IdempotencyRecord.objects.filter(
        **wanted, status=None, created_at__lt=timezone.now() - ABANDONED
    ).delete()
    try:
        with transaction.atomic():
            return IdempotencyRecord.objects.create(**wanted, request_digest=made)
    except IntegrityError:
        pass
    record = IdempotencyRecord.objects.filter(**wanted).first()
    if record is None or (record.status is None and record.request_digest == made):
        raise _in_progress()
    if record.request_digest != made:
        raise Problem(
            _("This Idempotency-Key was used for another request."),
            status=422,
            code="idempotency_key_reused",
            remedy=_("Use a new key for a new request; send the same body for a repeat."),
        )
    raise Replay(stored_response(record))


def _in_progress() -> Problem:
    return Problem(
        _("The first request with this Idempotency-Key is still being answered."),
        status=409,
        code="idempotency_in_progress",
        remedy=_("Wait a moment and send it again: you will get the first one's answer."),
        headers={"Retry-After": "1"},
    )


def request_digest(request: Request) -> str:
    body = hashlib.sha256(request.body).hexdigest()
    return hashlib.sha256(f"{request.method}\n{request.get_full_path()}\n{body}".encode()).hexdigest()


def answer_once(
    record: IdempotencyRecord, handler: Callable[..., Response], hidden: tuple[str, ...]
) -> Callable[..., Response]:
    """The handler, storing its answer together with what it changes.

    The transaction begins when the handler's action has been checked, and takes the record with it: a
    request that was slow enough to be taken for dead changes nothing once another has its key.
    """

    def take() -> None:
        mine = IdempotencyRecord.objects.select_for_update().filter(pk=record.pk, status=None)
        if not mine.exists():
            raise _in_progress()

    def answer(request: Request, *args: Any, **kwargs: Any) -> Response:
        with one_transaction(take):
            response = handler(request, *args, **kwargs)
            store(record, response, hidden)
        return response

    return answer


def store(record: IdempotencyRecord, response: Response, hidden: tuple[str, ...] = ()) -> None:
    """Keep an answer, without the fields in ``hidden`` (secrets that are shown once), or free the key."""
    if response.status_code in {409, 429} or response.status_code >= 500:
        free(record)
        return
    data = response.data
    if hidden and isinstance(data, dict):
        data = {name: None if name in hidden else value for name, value in data.items()}
    record.status = response.status_code
    record.body = {"data": data, "location": response.headers.get("Location")}
    IdempotencyRecord.objects.filter(pk=record.pk).update(status=record.status, body=_plain(record.body))


def free(record: IdempotencyRecord) -> None:
    IdempotencyRecord.objects.filter(pk=record.pk).delete()


def _plain(value: Any) -> Any:
    """What the renderer would write, as JSON values (dates, UUIDs and lazy texts become text)."""
    import json

    from rest_framework.renderers import JSONRenderer

    return json.loads(JSONRenderer().render(value))


def stored_response(record: IdempotencyRecord) -> Response:
    body = record.body or {}
    status = record.status or 200
    headers = {REPLAYED: "true"}
    if body.get("location"):
        headers["Location"] = body["location"]
    make = ProblemResponse if status >= 400 else Response
    return make(body.get("data"), status=status, headers=headers)


def trim() -> int:
    """Delete records past their 24 h; how many there were."""
    count, _models = IdempotencyRecord.objects.filter(created_at__lt=timezone.now() - KEPT).delete()
    return count
