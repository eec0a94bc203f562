"""An engine's log in pieces: its tail, the piece before or after an offset, and a search on the host.

Offsets are bytes in the file on the host. A piece begins and ends at line ends where there are any, so
pieces join without a torn line. No call reads more than the piece it returns.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from engines.models import EngineStart
from engines.ssh.errors import HostError
from engines.ssh.session import Session, session_for

#: bytes that a tail looks at, and the most that one piece holds
TAIL_BYTES, PIECE_BYTES = 131_072, 262_144
#: longest part of a found line that is shown, characters
LINE_CHARS = 400

_SEARCH = r"""
[ -r "$1" ] || exit 3
grep -a -b -F -i -m "$3" -e "$2" -- "$1" | cut -b "1-$4"
"""


@dataclass(frozen=True)
class Chunk:
    """A piece of a log: bytes ``start_offset`` up to ``end_offset`` of the file, as text."""

    start_offset: int
    end_offset: int
    text: str


@dataclass(frozen=True)
class Hit:
    """A line that holds the text looked for; ``offset`` is where the line begins."""

    offset: int
    text: str


def tail(start: EngineStart, lines: int = 400) -> Chunk:
    """The last ``lines`` lines, or as many as TAIL_BYTES hold. Empty when there is no file yet."""
    session = session_for(start.engine.host)
    try:
        size = session.size(start.log_path)
        if not size:
            return Chunk(0, 0, "")
        begin = max(0, size - TAIL_BYTES)
        data = session.read_range(start.log_path, begin, size - begin)
    finally:
        session.close()
    skip = _after_first_line(data) if begin else 0
    end = begin + len(data)
    rows = data[skip:].split(b"\n")
    # a file that ends with a line end has an empty last row
    keep = lines + (1 if rows[-1] == b"" else 0)
    kept = b"\n".join(rows[-keep:])
    return Chunk(end - len(kept), end, as_text(kept))


def before(start: EngineStart, offset: int, length: int = 65_536) -> Chunk:
    """About ``length`` bytes that end at ``offset``, from the beginning of a line."""
    length = min(length, PIECE_BYTES)
    begin = max(0, offset - length)
    data = read(start, begin, offset - begin)
    skip = _after_first_line(data) if begin else 0
    return Chunk(begin + skip, begin + len(data), as_text(data[skip:]))


def after(start: EngineStart, offset: int, length: int = PIECE_BYTES) -> Chunk:
    """What has come since ``offset``: whole lines, or a line's beginning if it is all there is.

    A file shorter than ``offset`` (it was replaced) is read from its beginning.
    """
    session = session_for(start.engine.host)
    try:
        size = session.size(start.log_path) or 0
        if size < offset:
            offset = 0
        if size == offset:
            return Chunk(offset, offset, "")
        data = session.read_range(start.log_path, offset, min(length, PIECE_BYTES))
    finally:
        session.close()
    end = data.rfind(b"\n") + 1 or _whole_characters(data)
    return Chunk(offset, offset + end, as_text(data[:end]))


def read(start: EngineStart, offset: int, length: int) -> bytes:
    """Raw bytes of the file; empty past its end."""
    session: Session = session_for(start.engine.host)
    try:
        return session.read_range(start.log_path, offset, length)
    finally:
        session.close()


def search(start: EngineStart, needle: str, limit: int = 200) -> list[Hit]:
    """The first ``limit`` lines that hold ``needle`` (plain text, upper and lower case alike)."""
    if not needle.strip() or "\n" in needle:
        return []
    session = session_for(start.engine.host)
    try:
        result = session.run(
            _SEARCH, args=[start.log_path, needle, str(limit), str(LINE_CHARS * 4)], timeout_s=60
        )
    finally:
        session.close()
    if result.status == 3:
        raise HostError(_("The log cannot be read on the host."), remedy=_("It may have been removed there."))
    return read_hits(result.stdout)


def read_hits(output: str) -> list[Hit]:
    """grep -b's output: "offset:line" on each line."""
    hits = []
    for row in output.splitlines():
        offset, colon, text = row.partition(":")
        if colon and offset.isdigit():
            hits.append(Hit(int(offset), text[:LINE_CHARS]))
    return hits


def as_text(data: bytes) -> str:
    """UTF-8 with a mark for bad bytes; the carriage returns of progress bars become line ends."""
    return data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def _after_first_line(data: bytes) -> int:
    """Where the first whole line begins; 0 when there is no line end at all."""
    return data.find(b"\n") + 1


def _whole_characters(data: bytes) -> int:
    """The length of ``data`` without a character that is cut at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) if needed <= back else len(data) - back
    return len(data)
