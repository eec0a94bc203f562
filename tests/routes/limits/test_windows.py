"""The pool of a window in Valkey, as time passes; that is done by moving the window's beginning back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from kvadmin import valkey
from routes.gateway.leases import PREFIX, Leases
from routes.gateway.shares import WINDOW_MS, Lease, Leased, WindowAnswer
from tests.routes.limits.support import a_key, empty_valkey

LIMIT = 100


@pytest.fixture(autouse=True)
def no_lessees():
    empty_valkey()


class Pool:
    """The window of one key's requests, asked by lessees."""

    def __init__(self) -> None:
        self.key_id = a_key().id
        self.name = f"{PREFIX}{self.key_id}:r"
        self.lessees = {name: Leases(os.environ["VALKEY_URL"], name) for name in ("one", "other")}

    async def ask(self, who: str, id: int = 0, leased: int = 0, need: int = 0, **ahead: int) -> WindowAnswer:
        numbers = (LIMIT, id, leased, need, 0, ahead.get("held", 0), ahead.get("want", 0))
        question = Lease(self.key_id, "", numbers, (-1,) * 7, (-1,) * 4, (-1,) * 6)
        (said,) = await self.lessees[who].lease([question])
        assert isinstance(said, Leased)
        assert said.requests is not None
        return said.requests

    def pass_time(self, ms: int) -> int:
        """Returns the beginning that the window has now."""
        client = valkey.client()
        began = int(client.hget(self.name, "s")) - ms
        client.hset(self.name, "s", began)
        return began

    async def close(self) -> None:
        for one in self.lessees.values():
            await one.close()


def check(work: Callable[[Pool], Awaitable[None]]) -> None:
    async def run() -> None:
        pool = Pool()
        await work(pool)
        await pool.close()

    asyncio.run(run())


def test_lessees_share_one_window():
    async def work(pool):
        first = await pool.ask("one", need=60)
        assert (first.granted, first.left, first.same) == (60, 40, False)
        second = await pool.ask("other", need=60)
        assert (second.id, second.granted, second.left) == (first.id, 40, 0)
        # the same again, as after an answer that was lost
        again = await pool.ask("other", second.id, 40)
        assert (again.granted, again.mine, again.left) == (0, 40, 0)
        back = await pool.ask("one", first.id, 10)
        assert (back.left, back.same) == (50, True)

    check(work)


def test_the_next_window_begins_where_this_one_ends_when_somebody_leased_of_it():
    async def work(pool):
        first = await pool.ask("one", need=60)
        ahead = await pool.ask("one", first.id, 60, want=25)
        assert ahead.ahead == 25
        # what was leased of it counts there, whoever looks first
        began = pool.pass_time(WINDOW_MS)
        second = await pool.ask("other", need=90)
        assert (second.id, second.granted, second.left) == (began + WINDOW_MS, 75, 0)
        mine = await pool.ask("one", second.id, 25)
        assert (mine.same, mine.mine, mine.left) == (True, 25, 0)

    check(work)


def test_after_a_pause_a_window_begins_with_its_first_request():
    async def work(pool):
        first = await pool.ask("one", need=100)
        began = pool.pass_time(WINDOW_MS + 20_000)
        second = await pool.ask("one", began, 100, need=1)
        assert second.id not in {first.id, began + WINDOW_MS}
        assert (second.granted, second.mine, second.left, second.same) == (1, 1, 99, False)

    check(work)


def test_a_window_that_valkey_lost_is_as_it_was():
    async def work(pool):
        first = await pool.ask("one", need=60)
        await pool.ask("other", need=30)
        empty_valkey()
        # one comes with what it has, then the other
        again = await pool.ask("one", first.id, 60, need=20)
        assert (again.id, again.same, again.granted) == (first.id, True, 20)
        other = await pool.ask("other", first.id, 30, need=20)
        assert (other.same, other.mine, other.left) == (True, 30, -10)

    check(work)


def test_what_is_held_counts_in_a_window_that_another_began_meanwhile():
    async def work(pool):
        first = await pool.ask("one", need=60)
        empty_valkey()
        await asyncio.sleep(0.01)
        second = await pool.ask("other", need=1)
        assert second.id != first.id
        mine = await pool.ask("one", first.id, 60)
        assert (mine.id, mine.same, mine.mine, mine.left) == (second.id, True, 60, 39)

    check(work)


def test_a_clock_that_is_ahead_a_little_does_no_harm():
    async def work(pool):
        first = await pool.ask("one", need=60)
        await pool.ask("one", first.id, 60, want=25)
        began = pool.pass_time(WINDOW_MS - 300)
        # this lessee has rolled over already
        found = await pool.ask("one", began + WINDOW_MS, 25, need=5)
        assert (found.id, found.same, found.mine) == (began + WINDOW_MS, True, 30)

    check(work)
