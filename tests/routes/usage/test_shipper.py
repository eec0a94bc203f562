from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg
import pytest
from django.db import connection

from kvadmin.models import Team
from routes.gateway.monthly import MonthCounter
from routes.gateway.shipper import Shipper
from routes.gateway.spool import Ledger
from routes.models import Business, Key
from tests.routes.usage.support import NOON, connect_arguments, rows, usage

pytestmark = pytest.mark.usefixtures("usage_tables")


def ship(tmp_path, *records, ledger: Ledger | None = None) -> Shipper:
    """Record and bring into the database."""
    ledger = ledger or Ledger(tmp_path)
    for one in records:
        ledger.record(one)
    shipper = Shipper(ledger, connect_arguments())
    assert asyncio.run(shipper.drain(20))
    ledger.close()
    return shipper


def test_a_row_arrives_as_it_was(tmp_path):
    row = usage(
        1.25,
        prompt_tokens=5,
        cached_tokens=2,
        completion_tokens=9,
        queue_s=0.01,
        first_byte_s=0.2,
        streamed=True,
        model='m\t"\\ 中\n',
        via="playground",
        via_user_id=7,
        target_id=None,
    )
    ship(tmp_path, row)
    (found,) = rows("SELECT * FROM routes_usage")
    assert str(found.pop("request_id")) == row.request_id
    assert found.pop("at").timestamp() == pytest.approx(row.at)
    for name, value in found.items():
        assert value == getattr(row, name), name


def test_the_spool_is_empty_after_a_drain(tmp_path):
    ship(tmp_path, *(usage(n) for n in range(100)))
    assert list(tmp_path.rglob("*.rows")) == []
    assert rows("SELECT count(*) AS n FROM routes_usage")[0]["n"] == 100


def test_rows_that_come_again_are_there_once(tmp_path):
    records = [usage(n) for n in range(10)]
    ship(tmp_path, *records)
    # as after a crash between commit and removal
    ship(tmp_path, *records, usage(10))
    assert rows("SELECT count(*) AS n FROM routes_usage")[0]["n"] == 11
    assert rows("SELECT count(*) AS n FROM routes_usage_dirty")[0]["n"] == 2


def test_the_rows_of_a_worker_that_is_gone_are_shipped(tmp_path):
    gone, mine = Ledger(tmp_path), Ledger(tmp_path)
    for n in range(5):
        gone.record(usage(n))
    gone.close()
    ship(tmp_path, usage(), ledger=mine)
    assert rows("SELECT count(*) AS n FROM routes_usage")[0]["n"] == 6


def test_a_row_that_no_column_takes_stops_no_other(tmp_path):
    bad = usage(status=2**40)
    shipper = ship(tmp_path, usage(1), usage(2), bad, usage(3), usage(float("nan")), usage(4))
    assert rows("SELECT count(*) AS n FROM routes_usage")[0]["n"] == 4
    assert (shipper.shipped, shipper.rejected) == (4, 2)


def test_a_file_damaged_in_the_middle_loses_only_that_line(tmp_path):
    ledger = Ledger(tmp_path)
    for n in range(6):
        ledger.record(usage(n))
    ledger.rotate()
    path = ledger.closed[0]
    lines = path.read_bytes().split(b"\n")
    lines[3] = b"\x00" * len(lines[3])
    path.write_bytes(b"\n".join(lines))
    shipper = ship(tmp_path, ledger=ledger)
    assert shipper.rejected == 1
    assert rows("SELECT count(*) AS n FROM routes_usage")[0]["n"] == 5


def test_a_file_that_is_gone_stops_no_other(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.record(usage(1))
    ledger.rotate()
    ledger.closed[0].unlink()
    ship(tmp_path, usage(2), ledger=ledger)
    assert rows("SELECT count(*) AS n FROM routes_usage")[0]["n"] == 1


def test_without_the_database_rows_stay_and_go_later(tmp_path):
    async def work():
        ledger = Ledger(tmp_path)
        shipper = Shipper(ledger, {**connect_arguments(), "dbname": "there_is_none"})
        ledger.record(usage(1))
        assert not await shipper.drain(0.5)
        assert not shipper.connected
        assert not ledger.empty
        assert shipper.lag_s > 0
        ledger.record(usage(2))
        again = Shipper(ledger, connect_arguments())
        assert await again.drain(20)
        ledger.close()

    asyncio.run(work())
    assert rows("SELECT count(*) AS n FROM routes_usage")[0]["n"] == 2


def test_a_connection_that_is_cut_is_made_again(tmp_path):
    async def work():
        ledger = Ledger(tmp_path)
        shipper = Shipper(ledger, connect_arguments(), every_s=0.05)
        running = asyncio.create_task(shipper.run())
        for n in range(30):
            ledger.record(usage(n))
            await asyncio.sleep(0.02)
            if n == 10:
                async with await psycopg.AsyncConnection.connect(
                    **connect_arguments(), autocommit=True
                ) as other:
                    await other.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE datname = current_database() AND application_name = 'kvadmin-usage'"
                    )
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert await shipper.drain(20)
        ledger.close()

    asyncio.run(work())
    assert rows("SELECT count(*) AS n FROM routes_usage")[0]["n"] == 30


def test_rows_held_in_memory_go_to_the_database_directly(tmp_path):
    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    ship(tmp_path, *(usage(n) for n in range(5)), ledger=Ledger(tmp_path, write=refuse))
    assert rows("SELECT count(*) AS n FROM routes_usage")[0]["n"] == 5


def test_a_key_is_marked_as_used(tmp_path):
    team = Team.objects.create(name="team")
    business = Business.objects.create(team=team, name="shop")
    key = Key.objects.create(business=business, name="one", public_id="a" * 12, digest=b"1" * 32)
    other = Key.objects.create(business=business, name="two", public_id="b" * 12, digest=b"2" * 32)
    ship(
        tmp_path,
        usage(30, key_id=key.pk, caller="10.0.0.2"),
        usage(0, key_id=key.pk, caller="10.0.0.1"),
        usage(60, key_id=key.pk, via="playground"),
        usage(60, key_id=other.pk, via="playground"),
    )
    key.refresh_from_db()
    other.refresh_from_db()
    assert (key.last_used_at - NOON).total_seconds() == 30
    assert key.last_used_ip == "10.0.0.2"
    assert other.last_used_at is None
    ship(tmp_path, usage(10, key_id=key.pk, caller="10.0.0.9"))
    key.refresh_from_db()
    assert key.last_used_ip == "10.0.0.2"


def test_rows_older_than_what_is_kept_are_not_taken(tmp_path):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE routes_usage_rollup SET upto = %s WHERE level = 'raw'", [NOON])
    ship(tmp_path, usage(-1), usage(1))
    assert rows("SELECT count(*) AS n FROM routes_usage")[0]["n"] == 1


def test_a_months_tokens_are_counted(tmp_path):
    ship(
        tmp_path,
        usage(1, prompt_tokens=10, completion_tokens=5),
        usage(2, key_id=2, prompt_tokens=1000),
        usage(-86_400 * 4, prompt_tokens=100),
    )
    began = NOON.replace(day=1, hour=0).timestamp()

    async def work():
        count = MonthCounter(connect_arguments())
        assert await asyncio.gather(count(1, began), count(2, began), count(3, began)) == [15, 1000, 0]
        # a connection that was cut is made again
        await count._connection.close()
        assert await count(1, began - 5 * 86_400) == 115
        await count.close()

    asyncio.run(work())


def test_counting_says_when_the_database_is_away():
    async def work():
        count = MonthCounter({**connect_arguments(), "dbname": "there_is_none"})
        with pytest.raises(OSError, match="OperationalError"):
            await count(1, 0.0)

    asyncio.run(work())
