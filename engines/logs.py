"""An engine's log in pieces: its tail, the piece before or after an offset, and a search on the host.

Offsets are bytes in the file on the host. A piece begins and ends at line ends where there are any, so
pieces join without a torn line. No call reads more than the piece it returns and a margin around it.

Everything that leaves this module is masked: the secrets that the start was given, and what looks like
one. A mask has as many bytes as what it hides, so offsets stay those of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.utils.translation import gettext as _

from engines.launch.ending import secrets_of
from engines.models import EngineStart
from engines.ssh.errors import HostError
from engines.ssh.session import Session, session_for
from engines.vllm.log_masking import forms_of, margin_of, mask_bytes, unfinished
from kvadmin.crypto import SecretUnreadable

#: bytes that a tail looks at, and the most that one piece holds
TAIL_BYTES, PIECE_BYTES = 131_072, 262_144
#: bytes of one piece of a copy
COPY_BYTES = 1_048_576
#: longest part of a found line that is shown, characters, and that is searched, bytes
LINE_CHARS, LINE_BYTES = 400, 16_384

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


@dataclass(frozen=True)
class Piece:
    """Whole characters of a file: ``offset`` to ``next_offset`` in bytes."""

    offset: int
    next_offset: int
    text: str


class SecretsUnknown(HostError):
    """The start's secrets cannot be decrypted, so nothing can be masked and nothing is shown."""

    code = "secret_unreadable"


class LogGone(HostError):
    """There is no such file on the host any more."""

    code = "log_gone"


class _MaskedFile:
    """A start's log through an open session: no byte of it leaves unmasked."""

    def __init__(self, session: Session, path: str, secrets: list[str]):
        self._session, self._path = session, path
        self._forms = forms_of(secrets)
        self.margin = margin_of(self._forms)

    def size(self) -> int | None:
        return self._session.size(self._path)

    def read(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``, masked together with a margin on both sides."""
        return self._read(offset, length)[0]

    def read_settled(self, offset: int, length: int) -> bytes:
        """``read`` without what may be the beginning of a secret that is still being written."""
        data, cut = self._read(offset, length)
        return data[: len(data) - cut]

    def _read(self, offset: int, length: int) -> tuple[bytes, int]:
        before = min(offset, self.margin)
        window = self._session.read_range(self._path, offset - before, before + length + self.margin)
        data = mask_bytes(window, self._forms)[before : before + length]
        at_end = before + length >= len(window)
        return data, min(unfinished(window, self._forms), len(data)) if at_end else 0

    def search(self, needle: str, limit: int) -> list[Hit]:
        result = self._session.run(
            _SEARCH, args=[self._path, needle, str(limit), str(LINE_BYTES)], timeout_s=60
        )
        if result.status == 3:
            raise HostError(
                _("The log cannot be read on the host."), remedy=_("It may have been removed there.")
            )
        return read_hits(result.stdout, needle, self._forms)


@contextmanager
def _masked_file(start: EngineStart) -> Iterator[_MaskedFile]:
    try:
        secrets = secrets_of(start)
    except SecretUnreadable as error:
        raise SecretsUnknown(
            _("The log is not shown: a secret that has to be hidden in it cannot be read."),
            remedy=_("An administrator can put the old data key back behind the new one."),
        ) from error
    session = session_for(start.engine.host)
    try:
        yield _MaskedFile(session, start.log_path, secrets)
    finally:
        session.close()


def tail(start: EngineStart, lines: int = 400) -> Chunk:
    """The last ``lines`` lines, or as many as TAIL_BYTES hold. Empty when there is no file yet."""
    with _masked_file(start) as file:
        size = file.size()
        if not size:
            return Chunk(0, 0, "")
        begin = max(0, size - max(TAIL_BYTES - 2 * file.margin, file.margin))
        data = file.read(begin, size - begin)
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

    A file shorter than ``offset`` (it was replaced) is read from its beginning. What may be the first
    half of a secret waits for the rest. Raises LogGone for a file that was there.
    """
    with _masked_file(start) as file:
        size = file.size()
        if size is None:
            if offset:
                raise _gone()
            return Chunk(0, 0, "")
        if size < offset:
            offset = 0
        if size == offset:
            return Chunk(offset, offset, "")
        data = file.read_settled(offset, min(length, PIECE_BYTES))
    end = data.rfind(b"\n") + 1 or _whole_characters(data)
    return Chunk(offset, offset + end, as_text(data[:end]))


def _gone() -> LogGone:
    return LogGone(
        _("The log is gone from the host: somebody removed or moved the file."),
        remedy=_("What kvadmin kept of it is with the start, under Starts."),
    )


def copy(start: EngineStart) -> Iterator[bytes]:
    """The log as it is now, in pieces. The first is read at once, and raises a HostError where there is none.

    What breaks off later ends with a line that says why: what was sent cannot be taken back.
    """
    with _masked_file(start) as file:
        size = file.size()
    if size is None:
        raise _gone()
    first = read(start, 0, min(size, COPY_BYTES))

    def pieces() -> Iterator[bytes]:
        piece, offset, why = first, 0, ""
        while piece:
            yield piece
            offset += len(piece)
            if offset >= size:
                return
            try:
                piece = read(start, offset, min(size - offset, COPY_BYTES))
            except HostError as error:
                piece, why = b"", error.message
        if offset < size:
            why = why or _("the file became shorter while it was read")
            said = _("kvadmin: this copy breaks off here, at byte %(offset)d of %(size)d: %(why)s")
            yield f"\n[{said % {'offset': offset, 'size': size, 'why': why}}]\n".encode()

    return pieces()


def read(start: EngineStart, offset: int, length: int) -> bytes:
    """Bytes of the file, masked; empty past its end."""
    with _masked_file(start) as file:
        return file.read(offset, length)


def read_piece(start: EngineStart, offset: int | None, length: int) -> tuple[int, Piece] | None:
    """The file's size and up to ``length`` bytes of whole characters, from the end without ``offset``.

    None when there is no file.
    """
    with _masked_file(start) as file:
        size = file.size()
        if size is None:
            return None
        offset = max(0, size - length) if offset is None else offset
        data = file.read(offset, length) if offset < size else b""
    piece = whole_characters(data, offset, at_start=offset == 0, at_end=offset + len(data) >= size)
    return size, piece


def search(start: EngineStart, needle: str, limit: int = 200) -> list[Hit]:
    """The first ``limit`` lines that hold ``needle`` (plain text, upper and lower case alike)."""
    if not needle.strip() or "\n" in needle:
        return []
    with _masked_file(start) as file:
        return file.search(needle, limit)


def read_hits(output: str, needle: str, forms: list[bytes]) -> list[Hit]:
    """grep -b's output ("offset:line" on each line), masked.

    A line that holds the needle only in what is masked is left out: else a secret could be guessed
    letter by letter.
    """
    hits = []
    wanted = needle.encode(errors="replace").lower()
    for row in output.split("\n"):
        offset, colon, text = row.partition(":")
        if not (colon and offset.isdigit()):
            continue
        masked = mask_bytes(text.encode(errors="replace"), forms)
        if wanted in masked.lower():
            hits.append(Hit(int(offset), masked.decode(errors="replace")[:LINE_CHARS]))
    return hits


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
