"""Server-sent events: the wire format, resuming, heartbeat, the end."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest
from django.db import connections

from kvadmin import sse
from kvadmin.actions import Actor
from kvadmin.actions.change_user import ChangeUser
from kvadmin.actions.reset_password import ResetPassword
from kvadmin.policies import Role
from kvadmin.sse import Event, Read, event_stream, format_event, last_event_id, still_allowed
from tests.support.api import Api


def always() -> bool:
    return True


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

    response = event_stream(read, 1, every_s=0, may_go_on=always)
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

    assert (
        collect(event_stream(read, None, every_s=0, heartbeat_s=0, may_go_on=always)).count(": still here")
        == 2
    )


def test_it_ends_after_its_time_without_saying_end():
    text = collect(event_stream(lambda cursor: Read(cursor), None, every_s=0, limit_s=-1, may_go_on=always))
    assert "event: end" not in text
    assert text.startswith("retry: ")


@pytest.mark.django_db(transaction=True)
def test_it_holds_no_database_connection_between_two_reads(django_user_model):
    seen = []

    def read(cursor: int) -> Read[int]:
        django_user_model.objects.count()
        seen.append(connections["default"])
        return Read(cursor + 1, done=cursor == 2)

    collect(event_stream(read, 0, every_s=0, may_go_on=always))
    assert len(seen) == 3
    assert all(connection.connection is None for connection in seen)


def test_it_stops_reading_when_the_client_goes():
    looks = []

    def read(cursor: None) -> Read[None]:
        looks.append(1)
        return Read(None, [Event("x")])

    async def run() -> None:
        stream = aiter(event_stream(read, None, every_s=0, may_go_on=always).streaming_content)
        await anext(stream)
        await anext(stream)
        await stream.aclose()

    asyncio.run(run())
    assert len(looks) == 1


def test_a_host_that_hangs_delays_no_other_stream():
    hanging = threading.Event()

    def hang(cursor: None) -> Read[None]:
        hanging.wait(30)
        return Read(None, done=True)

    def quick(cursor: None) -> Read[None]:
        return Read(None, [Event("here")], done=True)

    async def whole(read, host) -> bytes:
        response = event_stream(read, None, host=host, every_s=0.01, may_go_on=always)
        return b"".join([chunk async for chunk in response.streaming_content])

    async def run() -> tuple[list[bytes], int]:
        stuck = [asyncio.create_task(whole(hang, "hung")) for _ in range(3 * sse.HOST_READERS)]
        await asyncio.sleep(0)
        others = await asyncio.wait_for(asyncio.gather(whole(quick, "well"), whole(quick, None)), 20)
        left = sum(not task.done() for task in stuck)
        hanging.set()
        await asyncio.gather(*stuck)
        return others, left

    others, left = asyncio.run(run())
    assert all(b"data: here" in text for text in others)
    assert left == 3 * sse.HOST_READERS
    assert not sse._host_readers()._held


def test_a_stream_ends_when_the_person_may_no_longer_follow_it():
    answers = iter([True, True, False])
    looks = []

    def read(cursor: None) -> Read[None]:
        looks.append(1)
        return Read(None)

    text = collect(event_stream(read, None, every_s=0, check_s=0, may_go_on=lambda: next(answers)))
    assert len(looks) == 3
    assert "event: end" not in text


class TestStillAllowed:
    @pytest.fixture
    def request_of(self, rf, client):
        def make(user):
            client.force_login(user)
            request = rf.get("/")
            request.user, request.session = user, client.session
            return request

        return make

    def test_it_follows_the_role_and_the_account(self, request_of, administrator, operator):
        look = still_allowed(request_of(operator), "engine.operate")
        assert look()
        ChangeUser(Actor(user=administrator), user=operator, role=Role.VIEWER).run()
        assert not look()
        ChangeUser(Actor(user=administrator), user=operator, role=Role.OPERATOR).run()
        assert look()
        ChangeUser(Actor(user=administrator), user=operator, is_active=False).run()
        assert not look()

    def test_it_ends_with_the_session(self, request_of, client, viewer):
        look = still_allowed(request_of(viewer), "engine.log")
        assert look()
        client.logout()
        assert not look()

    def test_it_ends_with_a_password_reset(self, request_of, administrator, viewer):
        look = still_allowed(request_of(viewer), "engine.log")
        ResetPassword(Actor(user=administrator), user=viewer).run()
        assert not look()

    def test_it_ends_with_the_token(self, viewer):
        token = Api(viewer).token
        look = still_allowed(SimpleNamespace(user=viewer, auth=token), "engine.log")
        assert look()
        viewer.management_tokens.update(revoked_at=token.created_at)
        assert not look()
