"""Server-sent events: the wire format, resuming, heartbeat, the end."""

from __future__ import annotations

import asyncio

import pytest
from django.db import connections

from kvadmin import sse
from kvadmin.sse import Event, Read, event_stream, format_event, last_event_id


def collect(response) -> str:
    async def run() -> bytes:
        return b"".join([chunk async for chunk in response.streaming_content])

    return asyncio.run(run()).decode()


def test_it_writes_id_name_and_data():
    assert format_event(Event("hello", name="line", id="7")) == b"id: 7\nevent: line\ndata: hello\n\n"


def test_it_leaves_out_what_is_the_default():
    assert format_event(Event("hello")) == b"data: hello\n\n"


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\rb"])
def test_it_splits_lines_so_that_data_cannot_start_a_field(text):
    assert format_event(Event(text)) == b"data: a\ndata: b\n\n"


def test_it_keeps_id_and_name_on_one_line():
    assert format_event(Event("x", name="a\nid: 9", id="1\n2")) == b"id: 1 2\nevent: a id: 9\ndata: x\n\n"


def test_it_writes_json_without_escaping_what_people_read():
    assert format_event(Event({"text": "主机"})) == 'data: {"text": "主机"}\n\n'.encode()


def test_it_does_not_fail_on_a_lone_surrogate():
    assert format_event(Event("\ud800")) == b"data: ?\n\n"


def test_it_reads_where_a_client_stopped(rf):
    assert last_event_id(rf.get("/", headers={"Last-Event-ID": "42"})) == "42"
    assert last_event_id(rf.get("/")) is None


def test_it_follows_the_reader_and_ends_with_it():
    def read(cursor: int) -> Read[int]:
        return Read(cursor + 1, [Event(str(cursor), id=str(cursor))], done=cursor == 3)

    response = event_stream(read, 1, every_s=0)
    text = collect(response)
    assert response["Content-Type"].startswith("text/event-stream")
    assert response["Cache-Control"] == "no-store"
    assert [line for line in text.splitlines() if line.startswith("data")] == [
        "data: 1",
        "data: 2",
        "data: 3",
        "data: {}",
    ]
    assert text.endswith("event: end\ndata: {}\n\n")


def test_it_sends_a_comment_when_there_is_nothing_to_say():
    looks = iter([False, False, True])

    def read(cursor: None) -> Read[None]:
        return Read(None, done=next(looks))

    assert collect(event_stream(read, None, every_s=0, heartbeat_s=0)).count(": still here") == 2


def test_it_ends_after_its_time_without_saying_end():
    text = collect(event_stream(lambda cursor: Read(cursor), None, every_s=0, limit_s=-1))
    assert "event: end" not in text
    assert text.startswith("retry: ")


@pytest.mark.django_db(transaction=True)
def test_it_holds_no_database_connection_between_two_reads(django_user_model):
    seen = []

    def read(cursor: int) -> Read[int]:
        django_user_model.objects.count()
        seen.append(connections["default"])
        return Read(cursor + 1, done=cursor == 2)

    collect(event_stream(read, 0, every_s=0))
    assert len(seen) == 3
    assert all(connection.connection is None for connection in seen)


def test_it_stops_reading_when_the_client_goes():
    looks = []

    def read(cursor: None) -> Read[None]:
        looks.append(1)
        return Read(None, [Event("x")])

    async def run() -> None:
        stream = sse._events(read, None, every_s=0, heartbeat_s=15, limit_s=60)
        await anext(stream)
        await anext(stream)
        await stream.aclose()

    asyncio.run(run())
    assert len(looks) == 1
