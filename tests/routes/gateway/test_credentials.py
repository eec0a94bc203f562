"""Keys as people send them, and each way in which one is refused."""

from __future__ import annotations

import time
from ipaddress import ip_network

import pytest

from routes import keyformat, standin
from routes.gateway.credentials import check_key, find_key, presented
from routes.gateway.faults import Fault
from routes.gateway.records import KeyRecord, Snapshot
from tests.support.gateway import PEPPER, Gateway, run
from tests.support.upstream import Upstream

NOW = 1_800_000_000.0
# the same in every process of the tests, whose names it is part of
PUBLIC = "Gz4mVq8tRb2W"
TEXT = keyformat.PREFIX + PUBLIC + "nT6xKc1hYd9sLw3fJp7aQe5uZi0oXv2rBk8gMy4C"
assert keyformat.public_id(TEXT) == PUBLIC


def key(**fields) -> KeyRecord:
    return KeyRecord(1, PUBLIC, keyformat.digest(TEXT, PEPPER), 1, 1, "search team", **fields)


def snapshot(found: KeyRecord | None = None) -> Snapshot:
    found = found or key()
    return Snapshot(keys={PUBLIC: found}, by_id={1: found})


def look_up(**headers: str | bytes):
    raw = {
        name.replace("_", "-").encode(): value if isinstance(value, bytes) else value.encode()
        for name, value in headers.items()
    }
    return find_key(presented(raw), snapshot(), PEPPER, NOW)


def refused(**headers: str | bytes) -> Fault:
    with pytest.raises(Fault) as caught:
        look_up(**headers)
    assert caught.value.status == 401
    for part in (TEXT, TEXT[6:18], TEXT[-8:]):
        assert part not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "value",
    [
        f"Bearer {TEXT}",
        f"bearer {TEXT}",
        f"BEARER {TEXT}",
        f"Bearer  {TEXT}",
        f"Bearer {TEXT} ",
        f"  Bearer {TEXT}",
        f"Bearer\t{TEXT}",
        f"Bearer {TEXT}\t",
        f"Bearer: {TEXT}",
        f'Bearer "{TEXT}"',
        f"Bearer '{TEXT}'",
        f'"Bearer {TEXT}"',
        f"Bearer \u201c{TEXT}\u201d",
        f"Bearer {TEXT}\u200b",
        f"Bearer \ufeff{TEXT}",
        f"Bearer \u00a0{TEXT}",
        f"Bearer Bearer {TEXT}",
        f"Bearer <{TEXT}>",
        TEXT,
        f'"{TEXT}"',
    ],
)
def test_a_key_is_found_in_whatever_it_was_wrapped_in(value):
    assert look_up(authorization=value).key.id == 1


@pytest.mark.parametrize("value", [TEXT, f" {TEXT}", f'"{TEXT}"', f"{TEXT}\u200b"])
def test_a_key_is_found_in_the_other_header(value):
    assert look_up(x_api_key=value).key.id == 1


def test_an_empty_authorization_does_not_hide_the_other_header():
    assert look_up(authorization="Bearer ", x_api_key=TEXT).key.id == 1


def test_a_key_in_the_bytes_of_another_alphabet_is_found():
    assert look_up(authorization=b"Bearer \xa0" + TEXT.encode()).key.id == 1


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "The request has no key"),
        ({"authorization": "Bearer "}, "no key in it"),
        ({"authorization": "Bearer"}, "no key in it"),
        ({"x_api_key": '""'}, "no key in it"),
        ({"authorization": "Basic dXNlcjpwYXNz"}, "`Basic`"),
        ({"authorization": f"Bearer {TEXT[:-1]}"}, "57 characters long and a key has 58"),
        ({"authorization": f"Bearer {TEXT[:-3]} ab"}, "a blank or a quote is inside it"),
        ({"authorization": f"Bearer {TEXT[:-1]}-"}, "characters that no key has"),
        ({"authorization": f"Bearer {TEXT[:-1]}_"}, "characters that no key has"),
        ({"authorization": f'Bearer "{TEXT[:-1]}{"a" if TEXT[-1] != "a" else "b"}"'}, "quotes"),
        ({"authorization": "Bearer other\t"}, "a tab"),
        ({"authorization": "Bearer other\u200b"}, "without width"),
        ({"authorization": "other"}, "`Bearer ` is missing"),
        ({"authorization": "Bearer Bearer other"}, "a second `Bearer`"),
        ({"authorization": "Bearer sk-or-v1-0123456789"}, "does not know the key"),
        ({"authorization": "Bearer " + "a" * 5000}, "far longer"),
    ],
    ids=str,
)
def test_each_refusal_says_what_is_wrong(headers, said):
    assert said in refused(**headers).message


def test_a_wrong_secret_under_a_known_id_is_refused():
    other = keyformat.PREFIX + PUBLIC + "0" * keyformat.SECRET_LENGTH
    assert "does not know the key" in refused(authorization=f"Bearer {other}").message


def test_an_imported_key_may_have_any_form():
    text = "sk-old_key-with_both"
    imported = KeyRecord(2, "", keyformat.digest(text, PEPPER), 1, 1, "old")
    known = Snapshot(imported={imported.digest: imported}, by_id={2: imported})
    given = presented({b"authorization": f"Bearer {text} ".encode()})
    assert find_key(given, known, PEPPER, NOW).key.id == 2


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"state": "disabled"}, 401, "key_disabled"),
        ({"state": "revoked"}, 401, "key_revoked"),
        ({"ends_at": NOW}, 401, "key_expired"),
        ({"ends_at": NOW - 1, "rotated": True}, 401, "key_rotated"),
        ({"addresses": (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"))}, 403, "address_not_allowed"),
    ],
)
def test_each_bound_has_its_own_error(fields, status, code):
    caller = find_key(presented({b"x-api-key": TEXT.encode()}), snapshot(key(**fields)), PEPPER, NOW)
    with pytest.raises(Fault) as caught:
        check_key(caller, "192.0.2.1", NOW)
    assert (caught.value.status, caught.value.code) == (status, code)
    assert TEXT not in str(caught.value)
    assert "search team" in caught.value.message


@pytest.mark.parametrize("address", ["10.1.2.3", "2001:db8::5"])
def test_a_key_works_within_its_bounds(address):
    networks = (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"))
    caller = find_key(
        presented({b"x-api-key": TEXT.encode()}),
        snapshot(key(addresses=networks, ends_at=NOW + 1)),
        PEPPER,
        NOW,
    )
    check_key(caller, address, NOW)


def test_a_stand_in_stands_for_its_key_for_a_minute():
    token = standin.sign(1, 7, "playground", PEPPER, NOW)
    caller = find_key(presented({b"authorization": f"Bearer {token}".encode()}), snapshot(), PEPPER, NOW + 30)
    assert (caller.key.id, caller.via, caller.user_id) == (1, "playground", 7)
    late = NOW + standin.LIFE_S + standin.SKEW_S + 1
    assert standin.verify(token, PEPPER, late) is None
    assert standin.verify(token, PEPPER, NOW - 2 * standin.SKEW_S) is None
    assert standin.verify(token, "another pepper", NOW) is None
    assert standin.verify(token[:-2] + ("AA" if token[-2:] != "AA" else "BB"), PEPPER, NOW) is None
    for broken in ("kvst-", "kvst-.", "kvst-a.b", "kvst-\u00e9.x", token.replace(".", ""), token + "."):
        assert standin.verify(broken, PEPPER, NOW) is None
    with pytest.raises(ValueError, match="none of"):
        standin.sign(1, 7, "anything", PEPPER, NOW)


def test_every_changed_character_of_a_stand_in_is_noticed():
    token = standin.sign(1, 7, "verify", PEPPER, NOW)
    for place in range(len(standin.PREFIX), len(token) - 1):
        other = "A" if token[place] != "A" else "B"
        assert standin.verify(token[:place] + other + token[place + 1 :], PEPPER, NOW) is None


def test_the_gateway_answers_for_each_key():
    async def main():
        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            gateway.add_route("other", engine.url)
            cases = [
                (gateway.add_key(), "qwen3-8b", 200, None),
                ("sk-kv-nonsense ", "qwen3-8b", 401, "invalid_api_key"),
                (gateway.add_key(state="disabled"), "qwen3-8b", 401, "key_disabled"),
                (gateway.add_key(ends_at=time.time() - 1), "qwen3-8b", 401, "key_expired"),
                (gateway.add_key(models=frozenset({"other"})), "qwen3-8b", 403, "model_not_allowed"),
                (gateway.add_key(models=frozenset({"other"})), "other", 200, None),
                (gateway.add_key(addresses=(ip_network("10.0.0.0/8"),)), "other", 403, "address_not_allowed"),
                ("sk-kv-nonsense", "other", 401, "invalid_api_key"),
                (gateway.add_key(models=frozenset({"other"})), "missing", 404, "model_not_found"),
            ]
            for text, model, status, code in cases:
                gateway.secret = text
                reply = await gateway.chat(model=model)
                assert (reply.status, reply.error["code"] if code else None) == (status, code)
                assert text not in str(reply)
                if text.endswith(" "):
                    assert "a blank too many" in reply.error["message"]
                if code in {"model_not_found", "model_not_allowed"}:
                    assert "This key may call: other." in reply.error["message"]
            # a request without a known key is in the log and in no one's bill
            assert len(gateway.rows) == len(cases) - 2
            assert len(gateway.rows.logged) == len(cases)
            assert gateway.limits.open == 0
            assert len(gateway.limits.grants) == 2

    run(main())


@pytest.mark.parametrize("state", ["loading", "expired"])
def test_what_cannot_be_decided_is_503_and_never_401(state):
    async def main():
        async with Gateway() as gateway:
            gateway.feed.state = state
            for _ in range(2):
                reply = await gateway.chat()
                assert (reply.status, reply.error["code"]) == (503, "gateway_not_ready")
                assert "retry-after" in reply.headers
                gateway.secret = "unknown"
            assert (await gateway.get("/readyz")).status == 503
            assert (await gateway.get("/healthz")).status == 200
            gateway.feed.state = "stale"
            reply = await gateway.get("/readyz")
            assert (reply.status, reply.json["status"]) == (200, "stale")

    run(main())


def test_the_address_comes_through_trusted_proxies_only():
    async def main():
        async with Upstream() as engine:
            for proxies, seen in (((), "127.0.0.1"), ((ip_network("127.0.0.0/8"),), "203.0.113.9")):
                async with Gateway(proxies=proxies) as gateway:
                    gateway.add_route("qwen3-8b", engine.url)
                    await gateway.chat("x-forwarded-for: 198.51.100.1, 203.0.113.9")
                    assert gateway.rows[0].caller == seen

    run(main())


def test_a_refusal_by_a_limit_is_429_and_says_when():
    async def main():
        from tests.support.gateway import Refusal

        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            for later in (None, 0.01):
                gateway.limits.later = later
                gateway.limits.refuse = Refusal()
                reply = await gateway.chat()
                assert (reply.status, reply.error["code"]) == (429, "rate_limit_exceeded")
                assert reply.error["type"] == "rate_limit_error"
                assert reply.headers["retry-after"] == "13"
                assert reply.headers["x-ratelimit-remaining-requests"] == "0"
                gateway.limits.refuse = None
                assert (await gateway.chat()).status == 200
            assert not any(row.attempts for row in gateway.rows if row.status == 429)

    run(main())


def test_a_caller_that_goes_while_it_waits_for_a_limit_leaves_nothing_behind():
    async def main():
        from tests.support.gateway import until
        from tests.support.upstream import compact

        async with Upstream() as engine, Gateway() as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            gateway.limits.later = 0.1
            async with gateway.client() as client:
                body = compact({"model": "qwen3-8b", "messages": []})
                client.write(gateway.head_of("/v1/chat/completions", body))
                await until(lambda: gateway.app.exchanges)
                client.abort()
            await until(lambda: gateway.rows)
            await until(lambda: gateway.limits.open == 0)
            assert not engine.calls

    run(main())
