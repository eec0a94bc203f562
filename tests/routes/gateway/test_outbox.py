"""What is said together at the end of a turn of the loop: rows first, then writes, in their order."""

from __future__ import annotations

import asyncio

import pytest

from routes.gateway.outbox import LARGE, Outbox
from tests.routes.usage.support import usage


class Said(list):
    """A ledger and a transport that tell in which order they were spoken to."""

    closing = False

    def record_all(self, rows):
        self.append([row.request_id for row in rows])

    def write(self, data):
        self.append(data)

    def is_closing(self):
        return self.closing


async def turn():
    """One turn of the loop."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_rows_are_kept_before_anything_is_written():
    async def main():
        said = Said()
        outbox = Outbox(asyncio.get_running_loop(), said)
        one, two = usage(1), usage(2)
        outbox.write(said, b"first")
        outbox.record(one)
        outbox.write(said, b"second")
        outbox.record(two)
        assert said == []
        await turn()
        assert said == [[one.request_id, two.request_id], b"first", b"second"]
        await turn()
        assert len(said) == 3

    asyncio.run(main())


def test_what_comes_alone_goes_at_once_but_never_before_what_waits():
    async def main():
        said = Said()
        outbox = Outbox(asyncio.get_running_loop(), said)
        outbox.write_now(said, b"alone")
        assert said == [b"alone"]
        row = usage(1)
        outbox.record(row)
        outbox.write_now(said, b"behind its row")
        assert said == [b"alone"]
        await turn()
        assert said == [b"alone", [row.request_id], b"behind its row"]

    asyncio.run(main())


def test_what_is_large_waits_for_nothing_and_overtakes_nothing():
    async def main():
        said = Said()
        outbox = Outbox(asyncio.get_running_loop(), said)
        outbox.write(said, b"small")
        outbox.write(said, b"x" * (LARGE + 1))
        assert said == [b"small", b"x" * (LARGE + 1)]

    asyncio.run(main())


def test_a_connection_that_closed_meanwhile_gets_nothing():
    async def main():
        said, gone = Said(), Said()
        outbox = Outbox(asyncio.get_running_loop(), said)
        outbox.write(gone, b"too late")
        outbox.write(said, b"in time")
        gone.closing = True
        await turn()
        assert (said, gone) == ([b"in time"], [])

    asyncio.run(main())


def test_a_row_that_cannot_be_written_keeps_no_answer():
    class Broken(Said):
        def record_all(self, rows):
            raise ZeroDivisionError

    async def main():
        broken = Broken()
        outbox = Outbox(asyncio.get_running_loop(), broken)
        outbox.record(usage(1))
        outbox.write(broken, b"answer")
        with pytest.raises(ZeroDivisionError):
            outbox.flush()
        assert broken == [b"answer"]

    asyncio.run(main())
