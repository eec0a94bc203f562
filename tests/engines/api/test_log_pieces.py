"""Cutting a log at bytes never cuts a character."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engines.logs import whole_characters


@given(st.text(), st.integers(4, 20))
def test_pieces_put_together_are_the_text(text, size):
    data, offset, found = text.encode(errors="ignore"), 0, ""
    while offset < len(data):
        raw = data[offset : offset + size]
        piece = whole_characters(raw, offset, at_start=offset == 0, at_end=offset + len(raw) >= len(data))
        assert piece.next_offset > offset
        found, offset = found + piece.text, piece.next_offset
    assert found == data.decode()


@given(st.text(), st.integers(0, 40), st.integers(4, 20))
def test_a_piece_from_anywhere_has_no_broken_character(text, offset, size):
    data = text.encode(errors="ignore")
    raw = data[offset : offset + size]
    piece = whole_characters(raw, offset, at_start=offset == 0, at_end=offset + len(raw) >= len(data))
    assert piece.text.count("\ufffd") == data[piece.offset : piece.next_offset].decode().count("\ufffd")


@given(st.binary(), st.integers(1, 3))
def test_bytes_that_are_no_text_still_come_forward(data, size):
    raw = data[:size]
    piece = whole_characters(raw, 0, at_start=True, at_end=len(raw) == len(data))
    assert piece.next_offset > 0 or not raw
