"""A range of an engine's log, read from the host; never the whole file."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework import serializers

from engines import logs
from engines.models import Engine, EngineStart
from engines.ssh.errors import HostError
from kvadmin.api.problems import Problem

_MOST_BYTES = 1_048_576
_LARGEST = 2**53


class LogQuery(serializers.Serializer):
    start = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=2**31 - 1,
        help_text="Number of the start; the newest by default.",
    )
    offset = serializers.IntegerField(
        required=False, min_value=0, max_value=_LARGEST, help_text="First byte; without it, the log's end."
    )
    bytes = serializers.IntegerField(
        default=65_536, min_value=1, max_value=_MOST_BYTES, help_text="How much to read at most."
    )


class LogSerializer(serializers.Serializer):
    start = serializers.IntegerField(help_text="Number of the start.")
    path = serializers.CharField(help_text="The file on the host.")
    size = serializers.IntegerField(help_text="Bytes in the file now.")
    offset = serializers.IntegerField(help_text="Byte at which the text begins.")
    next_offset = serializers.IntegerField(help_text="Where to read on.")
    text = serializers.CharField(allow_blank=True, help_text="Secrets masked, byte for byte.")


def read_log(engine: Engine, asked: dict[str, Any]) -> dict[str, Any]:
    """What LogQuery asks for; 404 without a log, 502 when the host cannot be reached."""
    start = _start(engine, asked.get("start"))
    try:
        found = logs.read_piece(start, asked.get("offset"), asked["bytes"])
    except HostError as error:
        raise Problem(error.message, status=502, code=error.code, remedy=error.remedy) from error
    if found is None:
        raise _no_log()
    size, piece = found
    return {
        "start": start.number,
        "path": start.log_path,
        "size": max(size, piece.next_offset if piece.text else 0),
        "offset": piece.offset,
        "next_offset": piece.next_offset,
        "text": piece.text,
    }


def _start(engine: Engine, number: int | None) -> EngineStart:
    starts = engine.starts.exclude(log_path="")
    start = (starts.filter(number=number) if number is not None else starts.order_by("-number")).first()
    if start is None:
        raise _no_log()
    return start


def _no_log() -> Problem:
    return Problem(
        _("There is no log of this start."),
        status=404,
        code="no_log",
        remedy=_("The list of starts shows which have one."),
    )
