"""Responses by id over several workers: found everywhere, read by nobody else, decided or not at all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
import redis

from routes.gateway import sharedresponses
from routes.gateway.responses import Responses, id_at_the_head
from routes.gateway.sharedresponses import PREFIX, SharedResponses
from tests.support.gateway import Gateway, run, until
from tests.support.own_valkey import OwnValkey
from tests.support.upstream import Call, Upstream, chunk, compact, head, whole


@pytest.fixture
def own_valkey(tmp_path) -> Iterator[OwnValkey]:
    one = OwnValkey(tmp_path)
    yield one
    one.thaw()
    one.kill()


@pytest.fixture(autouse=True)
def settled_at_once(monkeypatch):
    monkeypatch.setattr(sharedresponses, "SETTLED_MS", 0)


@asynccontextmanager
async def workers(url: str, *engines: Upstream, limit: int = 50_000) -> AsyncIterator[list[Gateway]]:
    """Two that share what Valkey remembers, with the same keys and routes."""
    shared = [SharedResponses(url, limit) for _n in range(2)]
    tasks = [asyncio.create_task(one.run()) for one in shared]
    one, other = (Gateway(responses=responses) for responses in shared)
    try:
        for gateway in (one, other):
            gateway.add_key()
            gateway.add_route("m", *(engine.url for engine in engines))
        async with one, other:
            yield [one, other]
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def together(gateways: list[Gateway]) -> None:
    await until(lambda: all(one.app.responses.shared for one in gateways))


async def answer(call: Call) -> None:
    """As vLLM does: under the id that was asked for."""
    id = call.json.get("request_id", "resp_1") if call.body else call.path.split("/")[3]
    await whole({"id": id, "model": "m", "status": "completed", "output": [], "error": None})(call)


async def make(gateway: Gateway, **fields: str) -> int:
    return (await gateway.chat(path="/v1/responses", model="m", **fields)).status


async def outcome(gateway: Gateway, id: str) -> list[tuple[int, str]]:
    """What becomes of asking for it, of cancelling it, and of going on from it."""
    replies = [
        await gateway.get(f"/v1/responses/{id}"),
        await gateway.send(gateway.head_of(f"/v1/responses/{id}/cancel", b"")),
        await gateway.chat(path="/v1/responses", model="m", previous_response_id=id),
    ]
    return [(reply.status, reply.json["error"]["code"] if reply.status >= 400 else "") for reply in replies]


def test_what_one_made_the_other_finds(own_valkey):
    async def main():
        async with (
            Upstream(answer) as first,
            Upstream(answer) as second,
            workers(own_valkey.url, first, second) as gateways,
        ):
            await together(gateways)
            one, other = gateways
            assert await make(one) == 200
            maker, idle = (first, second) if first.calls else (second, first)
            assert await outcome(other, "resp_1") == [(200, "")] * 3
            assert [call.line.split()[:2] for call in maker.calls[1:]] == [
                ["GET", "/v1/responses/resp_1"],
                ["POST", "/v1/responses/resp_1/cancel"],
                ["POST", "/v1/responses"],
            ]
            assert not idle.calls
            assert await outcome(other, "resp_2") == [(404, "response_not_found")] * 3
            assert not idle.calls

    run(main())


def test_another_business_finds_it_nowhere(own_valkey):
    async def main():
        async with Upstream(answer) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            assert await make(gateways[0]) == 200
            calls = len(engine.calls)
            for gateway in reversed(gateways):
                gateway.secret = gateway.add_key(business_id=2)
                assert await outcome(gateway, "resp_1") == [(404, "response_not_found")] * 3
            assert len(engine.calls) == calls

    run(main())


def test_nobody_answers_under_anothers_id(own_valkey):
    async def main():
        async with Upstream(answer) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            assert await make(gateways[0], request_id="resp_mine") == 200
            assert await make(gateways[1], request_id="resp_mine") == 200
            for gateway in gateways:
                gateway.secret = gateway.add_key(business_id=2)
                calls = len(engine.calls)
                reply = await gateway.chat(path="/v1/responses", model="m", request_id="resp_mine")
                assert (reply.status, reply.error["code"]) == (400, "response_id_taken")
                assert reply.error["param"] == "request_id"
                assert len(engine.calls) == calls
                assert await outcome(gateway, "resp_mine") == [(404, "response_not_found")] * 3

    run(main())


def test_of_two_makers_at_once_the_first_stays(own_valkey):
    async def main():
        one, other = SharedResponses(own_valkey.url), SharedResponses(own_valkey.url)
        tasks = [asyncio.create_task(each.run()) for each in (one, other)]
        await until(lambda: one.shared and other.shared)
        one.remember("resp_1", 11, 1)
        await until(lambda: not one._untold)
        other.remember("resp_1", 22, 2)
        await until(lambda: other.of_another("resp_1", 2))
        assert other.find("resp_1", 1) == 11
        for task in tasks:
            task.cancel()

    run(main())


def test_requests_that_name_no_response_do_not_wait_for_valkey(own_valkey):
    async def main():
        async with Upstream(answer) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            own_valkey.freeze()
            assert await make(gateways[0]) == 200
            assert (await gateways[0].get("/v1/responses/resp_1")).status == 200
            assert await make(gateways[0], previous_response_id="resp_1") == 200

    run(main())


def test_a_silent_valkey_leaves_it_undecided(own_valkey, monkeypatch):
    monkeypatch.setattr(sharedresponses, "ASK_S", 0.2)

    async def main():
        async with Upstream(answer) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            own_valkey.freeze()
            assert await outcome(gateways[1], "resp_1") == [(503, "response_undecided")] * 3
            assert (await gateways[1].get("/v1/responses/resp_1")).headers["retry-after"] == "2"
            assert not engine.calls

    run(main())


def test_without_valkey_what_is_known_here_goes_on_and_all_is_told_again(own_valkey, monkeypatch):
    monkeypatch.setattr(sharedresponses, "AGAIN_S", 0.05)

    async def main():
        async with Upstream(answer) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            one, other = gateways
            assert await make(one, request_id="resp_before") == 200
            own_valkey.kill()
            await until(lambda: not any(each.app.responses.shared for each in gateways))
            assert await make(one) == 200
            assert await outcome(one, "resp_before") == [(200, "")] * 3
            assert await outcome(one, "resp_1") == [(200, "")] * 3
            calls = len(engine.calls)
            assert await outcome(other, "resp_1") == [(503, "response_undecided")] * 3
            # that it belongs to another business is known here, with or without Valkey
            secret, one.secret = one.secret, one.add_key(business_id=2)
            assert await outcome(one, "resp_1") == [(404, "response_not_found")] * 3
            one.secret = secret
            assert len(engine.calls) == calls
            await asyncio.to_thread(own_valkey.start)
            await together(gateways)
            await until(lambda: not one.app.responses._untold)
            assert await outcome(other, "resp_before") == [(200, "")] * 3
            assert await outcome(other, "resp_1") == [(200, "")] * 3

    run(main())


def test_a_valkey_that_forgot_is_not_believed_at_once(own_valkey, monkeypatch):
    monkeypatch.setattr(sharedresponses, "SETTLED_MS", 3_600_000)

    async def main():
        async with Upstream(answer) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            assert await make(gateways[0]) == 200
            assert (await gateways[1].get("/v1/responses/resp_1")).status == 200
            assert await outcome(gateways[1], "resp_2") == [(503, "response_undecided")] * 3

    run(main())


def test_a_valkey_that_was_emptied_is_told_again(own_valkey, monkeypatch):
    monkeypatch.setattr(sharedresponses, "BEAT_S", 0.05)

    async def main():
        async with Upstream(answer) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            one, other = gateways
            assert await make(one) == 200
            await until(lambda: not one.app.responses._untold)
            client = redis.Redis(unix_socket_path=str(own_valkey.path), password=own_valkey.password)
            client.flushall()
            await until(lambda: len(client.keys(f"{PREFIX}*")) == 2)
            assert (await other.get("/v1/responses/resp_1")).status == 200

    run(main())


def test_valkey_holds_ids_alone_and_not_for_good(own_valkey):
    async def main():
        async with Upstream(answer) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            assert await make(gateways[0], input="a secret prompt") == 200
            await until(lambda: not gateways[0].app.responses._untold)
        client = redis.Redis(unix_socket_path=str(own_valkey.path), password=own_valkey.password)
        names = [name for name in client.keys("*") if name != sharedresponses.BEGAN.encode()]
        assert len(names) == 1
        assert re.fullmatch(rb"kvadmin:responses:[0-9a-f]{32}", names[0])
        assert re.fullmatch(rb"\d+ \d+", client.get(names[0]))
        assert 0 < client.ttl(names[0]) <= sharedresponses.TTL_S

    run(main())


def test_what_one_worker_forgot_valkey_still_has(own_valkey):
    async def main():
        async with Upstream(answer) as engine, workers(own_valkey.url, engine, limit=2) as gateways:
            await together(gateways)
            one = gateways[0]
            for number in range(5):
                assert await make(one, request_id=f"resp_{number}") == 200
                await until(lambda: not one.app.responses._untold)
            assert not one.app.responses.knows("resp_0")
            assert await outcome(one, "resp_0") == [(200, "")] * 3

    run(main())


def test_a_stream_is_found_before_it_ends(own_valkey):
    created = {"type": "response.created", "response": {"id": "resp_s", "model": "m"}}

    async def streams(call: Call) -> None:
        if call.line.startswith("GET"):
            await answer(call)
            return
        call.writer.write(head(kind="text/event-stream", transfer_encoding="chunked") + b"\r\n")
        call.writer.write(chunk(b"event: response.created\ndata: " + compact(created) + b"\n\n"))
        await call.gone.wait()

    async def main():
        async with Upstream(streams) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            one, other = gateways
            body = compact({"model": "m", "stream": True, "input": "hi"})
            async with one.client() as caller:
                caller.write(one.head_of("/v1/responses", body))
                await caller.head()
                assert (await other.get("/v1/responses/resp_s")).status == 200

    run(main())


def test_a_large_response_is_found_too(own_valkey):
    async def large(call: Call) -> None:
        if call.line.startswith("GET"):
            await answer(call)
        else:
            await whole({"id": "resp_large", "model": "m", "output": ["x" * 300_000]})(call)

    async def main():
        async with Upstream(large) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            assert await make(gateways[0]) == 200
            assert (await gateways[1].get("/v1/responses/resp_large")).status == 200

    run(main())


def test_a_caller_that_goes_while_valkey_is_asked_leaves_nothing(own_valkey):
    async def main():
        async with Upstream(answer) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            own_valkey.freeze()
            async with gateways[1].client() as caller:
                caller.write(gateways[1].head_of("/v1/responses/resp_1/cancel", b""))
                await until(lambda: gateways[1].app.exchanges)
                caller.abort()
            await until(lambda: not gateways[1].app.exchanges)
            own_valkey.thaw()
            await together(gateways)
            assert (await gateways[1].get("/v1/responses/resp_1")).status == 404
            assert not engine.calls

    run(main())


def test_an_answer_by_id_has_the_routes_name_and_its_query_goes_along():
    async def main():
        async with Upstream(answer) as engine, Gateway() as gateway:
            gateway.add_route("m", {"base_url": engine.url, "model": "the/target"})
            assert await make(gateway) == 200
            for size in (10, 300_000):
                made = {"id": "resp_1", "model": "the/target", "output": ["x" * size]}
                engine.answer = whole(made)
                reply = await gateway.get("/v1/responses/resp_1?include=a%20b&starting_after=3")
                assert reply.json == {**made, "model": "m"}
                assert engine.calls[-1].path == "/v1/responses/resp_1?include=a%20b&starting_after=3"
            reply = await gateway.get("/v1/responses/resp_1", method="HEAD")
            assert (reply.status, reply.headers.get("content-length")) == (200, None)

    run(main())


def test_a_target_that_no_request_went_to_yet_is_known_by_its_response(own_valkey):
    async def main():
        async with Upstream(answer) as engine, workers(own_valkey.url, engine) as gateways:
            await together(gateways)
            one, other = gateways
            assert await make(one) == 200
            assert not other.app.targets.all()
            assert (await other.get("/v1/responses/resp_1")).status == 200
            # until its route has it no more
            other.add_route("m", "http://127.0.0.1:1")
            assert (await other.get("/v1/responses/resp_1")).status == 404

    run(main())


def test_the_first_business_keeps_an_id_and_the_oldest_are_forgotten():
    known = Responses(limit=2)
    known.remember("a", 1, 1)
    known.remember("a", 2, 2)
    assert (known.find("a", 1), known.find("a", 2), known.of_another("a", 2)) == (1, None, True)
    known.remember("b", 1, 1)
    known.remember("c", 1, 1)
    assert not known.knows("a")
    assert known.knows("c")


@pytest.mark.parametrize("id", ["a b", "a\r\nhost: x", "a/b", "a?b", "a%20b", "é", "x" * 201, ""])
def test_an_id_that_would_not_stand_in_an_address_is_not_kept(id):
    known = Responses()
    known.remember(id, 1, 1)
    assert known.find(id, 1) is None


def test_the_id_of_a_response_is_found_at_its_head():
    assert id_at_the_head(b'{"id":"resp_1","created":1') == "resp_1"
    assert id_at_the_head(b' {\n  "id" : "resp_1"') == "resp_1"
    assert id_at_the_head(b'{"object":"response","id":"resp_1"}') == ""
    assert id_at_the_head(b"") == ""
