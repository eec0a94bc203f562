"""A range of an engine's log, read from the host; never the whole file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from rest_framework import serializers

from engines.models import Engine, EngineStart
from engines.ssh.errors import HostError
from engines.ssh.session import session_for
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
    text = serializers.CharField(allow_blank=True)


@dataclass(frozen=True)
class Piece:
    """Whole characters of a file: ``offset`` to ``next_offset`` in bytes."""

    offset: int
    next_offset: int
    text: str


def whole_characters(data: bytes, offset: int, *, at_start: bool, at_end: bool) -> Piece:
    """``data`` without the halves of characters at its cut ends."""
    first = 0
    if not at_start:
        while first < min(3, len(data)) and data[first] & 0xC0 == 0x80:
            first += 1
    last = len(data)
    if not at_end:
        for back in range(1, min(4, last - first) + 1):
            byte = data[last - back]
            if byte & 0xC0 == 0x80:
                continue
            needed = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            # a single character longer than what was asked for is given broken rather than never
            if needed > back and last - back > 0:
                last -= back
            break
    return Piece(offset + first, offset + last, data[first:last].decode(errors="replace"))


def read_log(engine: Engine, asked: dict[str, Any]) -> dict[str, Any]:
    """What LogQuery asks for; 404 without a log, 502 when the host cannot be reached."""
    start = _start(engine, asked.get("start"))
    try:
        session = session_for(engine.host)
        try:
            size = session.size(start.log_path)
            if size is None:
                raise _no_log()
            offset = asked.get("offset", max(0, size - asked["bytes"]))
            data = session.read_range(start.log_path, offset, asked["bytes"]) if offset < size else b""
        finally:
            session.close()
    except HostError as error:
        raise Problem(error.message, status=502, code=error.code, remedy=error.remedy) from error
    piece = whole_characters(data, offset, at_start=offset == 0, at_end=offset + len(data) >= size)
    return {
        "start": start.number,
        "path": start.log_path,
        "size": max(size, piece.next_offset if data else 0),
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
