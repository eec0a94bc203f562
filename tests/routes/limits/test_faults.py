"""What becomes of limits when a gateway, Valkey or the database goes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kvadmin import valkey
from routes.gateway import leases
from routes.gateway.leases import Lease, Leases, outstanding
from routes.gateway.limits import Grant, Limits, Refusal, month_began, month_of
from tests.routes.limits.support import a_key, burst, empty_valkey, limiters, take, until
from tests.support.own_valkey import OwnValkey


@pytest.fixture(autouse=True)
def no_lessees():
    empty_valkey()


@pytest.fixture
def own_valkey(tmp_path) -> Iterator[OwnValkey]:
    one = OwnValkey(tmp_path)
    yield one
    one.kill()


def test_slots_of_a_gateway_that_crashed_come_back(monkeypatch):
    monkeypatch.setattr(leases, "LESSEE_TTL_MS", 1200)

    async def check():
        async with limiters(2) as (crashed, other):
            key = a_key(concurrent=10)
            grants, _refusals = await burst([crashed], key, 10)
            assert len(grants) == 10
            grants, _refusals = await burst([other], key, 3)
            assert grants == []

            # nothing is heard of it any more, as after kill -9
            crashed._beat_at = time.time() + 3600
            taken, end = 0, time.monotonic() + 20
            while taken < 10:
                assert time.monotonic() < end
                taken += isinstance(await take(other, key), Grant)
                await asyncio.sleep(0.05)
            assert isinstance(await take(other, key), Refusal)
            assert sum(outstanding(valkey.client()).values()) == 10

    asyncio.run(check())


def test_a_gateway_that_ends_gives_everything_back_at_once():
    async def check():
        key = a_key(requests_per_minute=100, concurrent=100, monthly_tokens=1000)
        async with limiters(1) as (one,):
            grants, _refusals = await burst([one], key, 5)
            for grant in grants:
                grant.settle(10)
                grant.release()
        assert outstanding(valkey.client()) == {}
        async with limiters(1) as (other,):
            grants, _refusals = await burst([other], key, 120)
            # five of the minute's hundred were used
            assert len(grants) == 95

    asyncio.run(check())


def test_without_valkey_each_worker_keeps_to_its_part(own_valkey):
    own_valkey.kill()

    async def check():
        made = [Limits(own_valkey.url, workers=2, number=number) for number in range(2)]
        tasks = [asyncio.create_task(one.run()) for one in made]
        await until(lambda: not any(one.shared for one in made))
        key = a_key(requests_per_minute=11, concurrent=100, tokens_per_minute=10_000, monthly_tokens=10_000)
        for one in made:
            # nobody waits
            assert not asyncio.iscoroutine(one.take(a_key(requests_per_minute=5), 1))
        grants, refusals = await burst(made, key, 50)
        assert len(grants) == 11
        assert {one.limit for one in refusals} == {"requests"}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(check())


def test_without_valkey_a_change_of_a_key_takes_nothing_from_its_month(own_valkey):
    own_valkey.kill()

    async def check():
        one = Limits(own_valkey.url)
        running = asyncio.create_task(one.run())
        await until(lambda: not one.shared)
        key = a_key(monthly_tokens=1000)
        grants, _refusals = await burst([one], key, 4, tokens=100)
        assert len(grants) == 4
        for changed, most in ((replace(key, name="renamed"), 6), (replace(key, monthly_tokens=1500), 5)):
            grants, refusals = await burst([one], changed, 20, tokens=100)
            assert (len(grants), len(refusals)) == (most, 20 - most)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(check())


def test_without_valkey_a_month_turns_as_well(own_valkey):
    own_valkey.kill()
    moment = [month_began(time.time()) + 32 * 86_400]
    moment[0] = month_began(moment[0]) - 10

    async def check():
        one = Limits(own_valkey.url, clock=lambda: moment[0])
        running = asyncio.create_task(one.run())
        await until(lambda: not one.shared)
        key = a_key(monthly_tokens=1000)
        for _month in range(2):
            grants, refusals = await burst([one], key, 12, tokens=100)
            assert (len(grants), {r.limit for r in refusals}) == (10, {"monthly"})
            for grant in grants:
                grant.settle(100)
                grant.release()
            moment[0] += 20
            await until(lambda: one._month == month_of(moment[0]))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(check())


def test_requests_that_wait_when_valkey_goes_are_answered(own_valkey):
    async def check():
        async with limiters(1, own_valkey.url) as (one,):
            await until(lambda: one.lessees == 1 and one.shared)
            own_valkey.process.send_signal(signal.SIGSTOP)
            try:
                grants, refusals = await burst([one], a_key(concurrent=10), 20)
            finally:
                own_valkey.process.send_signal(signal.SIGCONT)
            assert (len(grants), len(refusals)) == (10, 10)
            await until(lambda: one.shared)

    asyncio.run(check())


def test_what_was_used_without_valkey_counts_when_it_is_back(own_valkey):
    async def check():
        async with limiters(2, own_valkey.url) as (one, other):
            key = a_key(requests_per_minute=100, concurrent=40)
            held, _refusals = await burst([one], key, 30)
            own_valkey.kill()
            more, _refusals = await burst([one], key, 5)
            await until(lambda: not one.shared and not other.shared)
            own_valkey.start()
            # it lost everything, and both tell what they hold
            await until(lambda: one.shared and other.shared and one.lessees == other.lessees == 2)
            await until(
                lambda: sum(int(n) for n in read(own_valkey, f"kvadmin:limits:{key.id}:c").values()) == 35
            )
            grants, refusals = await burst([other], key, 20)
            assert (len(grants), {r.limit for r in refusals}) == (5, {"concurrent"})
            for grant in [*held, *more, *grants]:
                grant.release()
            passed = 0
            for _round in range(12):
                grants, _refusals = await burst([one, other], key, 10)
                passed += len(grants)
                for grant in grants:
                    grant.release()
                await asyncio.sleep(0.1)
            assert passed <= 60
            assert passed >= 55

    asyncio.run(check())


def read(own: OwnValkey, name: str) -> dict:
    return valkey._client(own.url, 2.0).hgetall(name)


def counter(sums: dict[int, int]):
    asked = []

    async def count(key_id: int, since: float) -> int:
        asked.append((key_id, since))
        return sums.get(key_id, 0)

    count.asked = asked
    return count


def test_a_month_begins_with_what_the_database_knows():
    async def check():
        key = a_key(monthly_tokens=1000)
        count = counter({key.id: 700})
        async with limiters(2, monthly_used=count) as made:
            grants, refusals = await burst(made, key, 10, tokens=100)
            assert (len(grants), {one.limit for one in refusals}) == (3, {"monthly"})
            assert "month" in refusals[0].message
            assert count.asked[0] == (key.id, month_began(time.time()))

    asyncio.run(check())


def test_a_month_is_counted_again_when_valkey_lost_it():
    async def check():
        key = a_key(monthly_tokens=1000)
        sums = {key.id: 0}
        async with limiters(2, monthly_used=counter(sums)) as made:
            grants, _refusals = await burst(made, key, 4, tokens=100)
            for grant in grants:
                grant.settle(100)
                grant.release()
            # all of it is in the database by now
            sums[key.id] = 400
            await asyncio.sleep(0.6)
            empty_valkey()
            await asyncio.sleep(0.6)
            passed = 0
            for _round in range(5):
                grants, _refusals = await burst(made, key, 4, tokens=100)
                passed += len(grants)
                for grant in grants:
                    grant.settle(100)
                    grant.release()
                    # should it be counted once more, because Valkey is silent for long on a busy machine
                    sums[key.id] += 100
                await asyncio.sleep(0.6)
            # each worker had a share in its hand, of a hundredth of the limit, when the pool was lost
            assert 5 <= passed <= 6

    asyncio.run(check())


def test_a_month_that_cannot_be_counted_refuses_nobody():
    async def check():
        async def count(key_id: int, since: float) -> int:
            raise OSError("away")

        async with limiters(1, monthly_used=count) as (one,):
            assert isinstance(await take(one, a_key(monthly_tokens=1000), 10), Grant)

    asyncio.run(check())


def test_tokens_of_a_lessee_that_is_gone_stay_counted(monkeypatch):
    monkeypatch.setattr(leases, "LESSEE_TTL_MS", 600)

    async def check():
        key = a_key(monthly_tokens=1000)
        gone = Leases(os.environ["VALKEY_URL"], "gone")
        month = month_of(time.time())
        question = lambda spent, held, base: Lease(  # noqa: E731
            key.id, month, (-1,) * 7, (-1,) * 7, (-1,) * 4, (1000, spent, held, 0, 0, base)
        )
        await gone.lease([question(0, 0, 0)])
        (said,) = await gone.lease([question(300, 200, -1)])
        assert said.monthly == (0, 500)
        await gone.close()
        other = Leases(os.environ["VALKEY_URL"], "other")
        await asyncio.sleep(0.8)
        (said,) = await other.lease([question(0, 0, -1)])
        # what it held is free, what it spent is not
        assert said.monthly == (0, 700)
        # it was only slow: what it spent before is in the pool already
        (said,) = await gone.lease([question(300, 0, -1)])
        assert said.month_anew
        assert said.monthly == (0, 700)
        (said,) = await gone.lease([question(50, 0, -1)])
        assert said.monthly == (0, 650)
        # the database knows of more
        (said,) = await other.lease([question(0, 0, 800)])
        assert said.monthly == (0, 200)
        # and less never lowers it: rows are on their way
        (said,) = await other.lease([question(0, 0, 10)])
        assert said.monthly == (0, 200)
        await gone.close()
        await other.close()

    asyncio.run(check())


def test_months_begin_on_the_first():
    for moment, month, began in (
        (1_777_593_600.0, "202605", 1_777_593_600.0),
        (1_777_593_599.9, "202604", 1_775_001_600.0),
        (1_780_272_000.5, "202606", 1_780_272_000.0),
    ):
        assert month_of(moment) == month
        assert month_began(moment) == began
