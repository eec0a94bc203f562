from __future__ import annotations

import random

import pytest

from engines.ssh.parse import Frame

NONCE = "0123456789abcdef"


def fed(data: bytes, *, cuts: list[int] | None = None, limit: int = 1000) -> Frame:
    frame = Frame(NONCE, limit)
    start = 0
    for cut in [*(cuts or []), len(data)]:
        frame.feed(data[start:cut])
        start = cut
    frame.close()
    return frame


def framed(body: bytes, before: bytes = b"", after: bytes = b"", status: int = 0) -> bytes:
    return (
        before + b"%s:begin:42\n" % NONCE.encode() + body + b"%s:end:%d\n" % (NONCE.encode(), status) + after
    )


def test_it_cuts_off_what_is_before_and_after():
    frame = fed(framed(b"out\n", b"motd without newline", b"bye\n", status=3))
    assert (bytes(frame.body), frame.pid, frame.status) == (b"out\n", 42, 3)
    assert frame.noise == b"motd without newline"


def test_it_keeps_output_without_a_final_newline():
    assert bytes(fed(framed(b"no newline")).body) == b"no newline"


@pytest.mark.parametrize("seed", range(30))
def test_it_does_not_matter_how_the_bytes_arrive(seed):
    rng = random.Random(seed)
    body = bytes(rng.randrange(256) for _ in range(rng.randrange(400))) + b"0123:end:" + b"\n" * 3
    data = framed(body, b"x" * rng.randrange(50), b"tail", status=rng.randrange(256))
    cuts = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(60)))
    frame, whole = fed(data, cuts=cuts), fed(data)
    assert bytes(frame.body) == body
    assert (frame.status, frame.pid) == (whole.status, 42)


def test_it_drops_what_is_over_the_limit_and_still_sees_the_end():
    frame = fed(framed(b"a" * 5000), cuts=list(range(0, 5000, 7)), limit=100)
    assert (len(frame.body), frame.truncated, frame.status) == (100, True, 0)


def test_output_at_the_limit_is_not_truncated():
    frame = fed(framed(b"a" * 100), limit=100)
    assert (len(frame.body), frame.truncated) == (100, False)


def test_a_cut_stream_has_no_status():
    frame = fed(framed(b"partial")[:-5])
    assert frame.status is None
    assert frame.body.startswith(b"partial")


def test_noise_without_a_frame_is_kept_for_the_sentence():
    frame = fed(b"This account is currently not available.\n" + b"x" * 10_000)
    assert frame.pid is None
    frame = fed(b"This account is currently not available.\n" * 100)
    assert frame.noise.startswith(b"This account")
