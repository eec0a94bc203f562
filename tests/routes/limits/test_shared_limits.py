from __future__ import annotations

import asyncio

import pytest

from kvadmin import valkey
from routes.gateway import limits as module
from routes.gateway.leases import outstanding
from routes.gateway.limits import FREE, Grant, Refusal
from tests.routes.limits.support import a_key, burst, empty_valkey, limiters, take, until


def run(coroutine):
    return asyncio.run(coroutine)


@pytest.fixture(autouse=True)
def no_lessees():
    empty_valkey()


@pytest.mark.parametrize("gateways", [1, 2, 3])
def test_fifty_at_once_against_ten_let_ten_through(gateways):
    async def check():
        async with limiters(gateways) as made:
            grants, refusals = await burst(made, a_key(requests_per_minute=10), 50)
            assert len(grants) == 10
            assert {one.limit for one in refusals} == {"requests"}
            assert all(0 < one.retry_after_s <= 60 for one in refusals)

    run(check())


@pytest.mark.parametrize("gateways", [1, 2])
def test_fifty_at_once_against_ten_slots_let_ten_through(gateways):
    async def check():
        async with limiters(gateways) as made:
            key = a_key(concurrent=10)
            grants, refusals = await burst(made, key, 50)
            assert len(grants) == 10
            assert {one.limit for one in refusals} == {"concurrent"}
            for one in grants:
                one.release()
            await asyncio.sleep(0.2)
            grants, _refusals = await burst(made, key, 50)
            assert len(grants) == 10

    run(check())


@pytest.mark.parametrize("gateways", [1, 2, 4])
@pytest.mark.parametrize("limit", [60, 1000])
def test_a_large_limit_is_kept_over_gateways(gateways, limit):
    async def check():
        async with limiters(gateways) as made:
            key = a_key(requests_per_minute=limit)
            passed = 0
            for _round in range(12):
                grants, _refusals = await burst(made, key, limit // 8)
                passed += len(grants)
                for one in grants:
                    one.settle(1)
                    one.release()
                await asyncio.sleep(0.02)
            assert passed <= limit
            # shares that one holds and another would need are small at the end
            assert passed >= limit * 0.95 - gateways

    run(check())


def test_one_gateway_alone_needs_no_round_trip_once_it_has_a_share():
    async def check():
        async with limiters(1) as (limits,):
            key = a_key(requests_per_minute=600, tokens_per_minute=100_000, concurrent=20)
            first = await take(limits, key, 100)
            assert isinstance(first, Grant)
            for _n in range(60):
                found = limits.take(key, 100)
                assert isinstance(found, Grant), "it had to wait"
                found.settle(50)
                found.release()

    run(check())


def test_a_request_refused_for_concurrency_burns_no_other_limit():
    async def check():
        async with limiters(2) as made:
            key = a_key(requests_per_minute=20, tokens_per_minute=1000, concurrent=1, monthly_tokens=10_000)
            grants, refusals = await burst(made, key, 20, tokens=100)
            assert (len(grants), len(refusals)) == (1, 19)
            assert {one.limit for one in refusals} == {"concurrent"}
            passed = 1
            # one after the other, all others of the minute pass, and not one more
            grants[0].settle(10)
            grants[0].release()
            for n in range(40):
                found = await take(made[n % 2], key, 10)
                while not isinstance(found, Grant) and found.limit == "concurrent":
                    # the slot is still on its way from the other one
                    await asyncio.sleep(0.05)
                    found = await take(made[n % 2], key, 10)
                if isinstance(found, Grant):
                    passed += 1
                    found.settle(10)
                    found.release()
                else:
                    assert found.limit == "requests"
            assert passed == 20

    run(check())


def test_tokens_are_reserved_and_settled():
    async def check():
        async with limiters(1) as (limits,):
            key = a_key(tokens_per_minute=1000)
            grants, refusals = await burst([limits], key, 3, tokens=400)
            assert (len(grants), len(refusals)) == (2, 1)
            assert refusals[0].limit == "tokens"
            for one in grants:
                one.settle(100)
                one.release()
            # 200 of 1000 were consumed
            grants, _refusals = await burst([limits], key, 3, tokens=400)
            assert len(grants) == 2

    run(check())


def test_more_tokens_than_were_reserved_count_too():
    async def check():
        async with limiters(2) as made:
            key = a_key(tokens_per_minute=1000)
            (grant,), _refusals = await burst(made[:1], key, 1, tokens=100)
            grant.settle(990)
            grant.release()
            await asyncio.sleep(0.7)
            grants, _refusals = await burst(made, key, 4, tokens=100)
            assert grants == []
            grants, _refusals = await burst(made, key, 4, tokens=5)
            assert len(grants) == 2

    run(check())


def test_a_request_larger_than_the_limit_is_told_that_it_never_passes():
    async def check():
        async with limiters(1) as (limits,):
            found = await take(limits, a_key(tokens_per_minute=1000), 1001)
            assert isinstance(found, Refusal)
            assert "never" in found.message

    run(check())


def test_a_request_that_ends_without_a_word_gives_all_back():
    async def check():
        async with limiters(1) as (limits,):
            key = a_key(tokens_per_minute=1000, concurrent=1, monthly_tokens=1000)
            for _n in range(5):
                found = await take(limits, key, 900)
                assert isinstance(found, Grant)
                found.release()
                found.release()

    run(check())


def test_a_caller_who_goes_while_waiting_keeps_nothing():
    async def check():
        async with limiters(2) as made:
            key = a_key(concurrent=3)
            waiting = [asyncio.ensure_future(made[0].take(key, 1)) for _n in range(3)]
            await asyncio.sleep(0)
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await asyncio.sleep(0.3)
            grants, _refusals = await burst(made, key, 9)
            assert len(grants) == 3

    run(check())


def test_a_key_without_limits_asks_nobody():
    async def check():
        async with limiters(1) as (limits,):
            assert limits.take(a_key(), 10) is FREE
            assert limits.asked == 0

    run(check())


def test_a_changed_limit_holds_at_once():
    async def check():
        async with limiters(1) as (limits,):
            key = a_key(requests_per_minute=100)
            assert isinstance(await take(limits, key), Grant)
            lower = type(key)(*(getattr(key, n) for n in key.__slots__[:-4]), 3, None, None, None)
            assert lower.requests_per_minute == 3
            grants, _refusals = await burst([limits], lower, 20)
            assert len(grants) == 2

    run(check())


def test_what_is_left_is_told():
    async def check():
        async with limiters(1) as (limits,):
            found = await take(limits, a_key(requests_per_minute=100, tokens_per_minute=5000), 1000)
            told = dict(line.split(": ") for line in found.lines().decode().splitlines())
            assert told["x-ratelimit-limit-requests"] == "100"
            assert told["x-ratelimit-remaining-requests"] == "99"
            assert told["x-ratelimit-remaining-tokens"] == "4000"
            assert 0 < int(told["x-ratelimit-reset-requests"].removesuffix("ms")) <= 60_000

    run(check())


def test_a_share_that_another_needs_comes_back():
    async def check():
        async with limiters(2) as (one, other):
            key = a_key(concurrent=100)
            grants, _refusals = await burst([one], key, 10)
            assert len(grants) == 10
            held, refused = [], 0
            while len(held) < 90:
                found = await take(other, key)
                if isinstance(found, Grant):
                    held.append(found)
                else:
                    refused += 1
                    assert refused < 200
                    await asyncio.sleep(0.05)
            found = await take(other, key)
            assert isinstance(found, Refusal)

    run(check())


def test_many_keys_are_seen_to_in_turns(monkeypatch):
    monkeypatch.setattr(module, "TEND", 3)
    monkeypatch.setattr(module, "FORGET_S", 0.0)
    monkeypatch.setattr(module, "TICK_S", 0.02)

    async def check():
        async with limiters(2) as (limits, _other):
            for _n in range(10):
                found = await take(limits, a_key(concurrent=3))
                found.release()
            await until(lambda: not limits._accounts)

    run(check())


def test_no_lease_is_left_after_all_ended():
    async def check():
        async with limiters(2) as made:
            key = a_key(concurrent=10, requests_per_minute=100)
            grants, _refusals = await burst(made, key, 8)
            assert sum(outstanding(valkey.client()).values()) >= 8
            for one in grants:
                one.release()
            await until(lambda: outstanding(valkey.client()) == {})

    run(check())
