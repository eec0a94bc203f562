"""Requests that are refused before they are whole: each of a known key has one row, no other has any."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from routes.gateway import protocol
from tests.support.gateway import Gateway, request, run, until
from tests.support.upstream import Upstream, compact

PATH = "/v1/chat/completions"
BODY = compact({"model": "qwen3-8b", "messages": []})
WAIT = "expect: 100-continue"
LARGE = f"content-length: {protocol.MAX_BODY + 1}"


@pytest.mark.parametrize(
    ("path", "lines", "body", "status", "code"),
    [
        (PATH, [LARGE], b"", 413, "body_too_large"),
        (PATH, [LARGE, WAIT], b"", 413, "body_too_large"),
        ("/v1/messages", [LARGE], b"", 413, "body_too_large"),
        (PATH, ["transfer-encoding: chunked"], b"1\r\n \r\nx\r\n", 400, "bad_request"),
        (PATH, ["content-length: 900"], b"{", 408, "request_timeout"),
    ],
)
def test_a_known_key_has_one_row(path, lines, body, status, code, monkeypatch):
    monkeypatch.setattr(protocol, "BODY_IDLE_S", 0.1)

    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                client.write(gateway.head_of(path, b"", *lines) + body)
                reply = await client.reply()
                assert reply.status == status
            await until(lambda: len(gateway.rows) == 1)
            (row,) = gateway.rows
            assert (row.key_id, row.status, row.error_code) == (gateway.key.id, status, code)
            assert (row.error_layer, row.tokens_source, row.caller) == ("caller", "", "127.0.0.1")
            assert row.request_id == reply.headers["x-request-id"]
            assert not engine.calls

    run(main())


def test_a_body_over_the_limit_in_chunks_has_one_row(monkeypatch):
    monkeypatch.setattr(protocol, "MAX_BODY", 1 << 20)

    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                client.write(gateway.head_of(PATH, b"", "transfer-encoding: chunked"))
                client.write((b"%x\r\n%b\r\n" % (1 << 19, b" " * (1 << 19))) * 3)
                assert (await client.reply()).status == 413
            await until(lambda: len(gateway.rows) == 1)
            assert (gateway.rows[0].key_id, gateway.rows[0].error_code) == (gateway.key.id, "body_too_large")

    run(main())


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"state": "disabled"}, 401, "key_disabled"),
        ({"state": "revoked"}, 401, "key_revoked"),
        ({"ends_at": 1.0}, 401, "key_expired"),
        ({"addresses": (ip_network("10.0.0.0/8"),)}, 403, "address_not_allowed"),
    ],
)
def test_a_key_that_may_not_call_is_refused_before_its_body_and_has_one_row(large, fields, status, code):
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            gateway.secret = ""
            gateway.add_key(**fields)
            lines = ["content-length: 1000000"] + ([] if large else [WAIT])
            async with gateway.client() as client:
                client.write(gateway.head_of(PATH, b"", *lines))
                if large:
                    client.write(b" " * 200_000)
                reply = await client.reply()
                assert (reply.status, reply.error["code"]) == (status, code)
            await until(lambda: len(gateway.rows) == 1)
            assert (gateway.rows[0].key_id, gateway.rows[0].error_code) == (gateway.key.id, code)

    run(main())


def test_one_that_goes_on_after_100_continue_has_one_row():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            async with gateway.client() as client:
                client.write(gateway.head_of(PATH, b"", WAIT, f"content-length: {len(BODY)}"))
                assert (await client.head())[0] == 100
                client.write(BODY)
                assert (await client.reply()).status == 200
            assert len(gateway.rows) == 1

    run(main())


@pytest.mark.parametrize(
    "raw",
    [
        request("POST", PATH, b"", LARGE),
        request("POST", PATH, b"", LARGE, "authorization: Bearer sk-kv-unknown"),
        request("POST", "/v1/nothing", b"", LARGE, "authorization: Bearer @KEY@"),
        request("POST", "/healthz", b"", LARGE, "authorization: Bearer @KEY@"),
        request("POST", PATH, b"", LARGE, "transfer-encoding: chunked", "authorization: Bearer @KEY@"),
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer @KEY@\r\nhost: b\r\n\r\n",
    ],
)
def test_what_names_no_known_key_or_is_no_request_has_none(raw):
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            reply = await gateway.send(raw.replace(b"@KEY@", gateway.secret.encode()))
            assert reply.status >= 400
            await until(lambda: len(gateway.rows.logged) == (0 if b"healthz" in raw else 1))
            assert not gateway.rows

    run(main())
