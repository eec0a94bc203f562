"""A head that comes again is not read again, and nothing else is taken for it."""

from __future__ import annotations

import pytest

from routes.gateway.repeats import LONGEST, Repeat

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nContent-Length: %d\r\naccept: */*\r\n\r\n"


def learned() -> Repeat:
    found = Repeat.of(HEAD % 3 + b"abc", 3)
    assert found is not None
    return found


@pytest.mark.parametrize("body", [b"", b"a", b"abc", b"a" * 100_000, b"\r\n\r\n", HEAD % 1 + b"x"])
def test_a_repeated_head_gives_its_body(body):
    assert learned().body_of(HEAD % len(body) + body) == body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEAD % 3,
        HEAD % 3 + b"ab",
        HEAD % 3 + b"abcd",
        HEAD.replace(b"%d", b"") + b"",
        HEAD.replace(b"%d", b"+3") + b"abc",
        HEAD.replace(b"%d", b"-3") + b"abc",
        HEAD.replace(b"%d", b" 3") + b"abc",
        HEAD.replace(b"%d", b"3 ") + b"abc",
        HEAD.replace(b"%d", b"3_0") + b"a" * 30,
        HEAD.replace(b"%d", "³".encode()) + b"abc",
        HEAD.replace(b"%d", b"0x3") + b"abc",
        HEAD.replace(b"%d", b"3, 3") + b"abc",
        HEAD.replace(b"%d", b"00000000003") + b"abc",
        HEAD.replace(b"%d", b"3\r\ncontent-length: 3") + b"abc",
        HEAD.replace(b"host: a", b"host: b") % 3 + b"abc",
        HEAD.replace(b"accept: */*", b"accept: */+") % 3 + b"abc",
        HEAD.replace(b"accept: */*", b"transfer-encoding: chunked") % 3 + b"abc",
        (HEAD % 3 + b"abc") * 2,
    ],
)
def test_anything_else_is_for_the_parser(data):
    assert learned().body_of(data) is None


def test_a_head_alone_is_one_whose_body_is_to_come():
    assert learned().is_alone(HEAD % 3)
    assert learned().is_alone(HEAD % 12345)
    for data in (HEAD % 0, HEAD % 3 + b"a", (HEAD % 3)[:-1], HEAD.replace(b"%d", b"3 "), b"", HEAD % 10**10):
        assert not learned().is_alone(data)


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (HEAD % 3 + b"abc" + b"POST", 3),
        (HEAD % 3 + b"abc", 2),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 3),
        (b"POST / HTTP/1.1\r\nhost: a\r\nx-content-length: 3\r\n\r\nabc", 3),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3 \r\n\r\nabc", 3),
        (b"POST / HTTP/1.1\r\nhost: a\r\nx: " + b"a" * LONGEST + b"\r\ncontent-length: 3\r\n\r\nabc", 3),
    ],
)
def test_only_a_whole_message_with_a_length_is_learned(data, body):
    assert Repeat.of(data, body) is None
