from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from ipaddress import ip_network

import psycopg
import pytest
from django.conf import settings
from django.utils import timezone

from engines.choices import EngineState
from kvadmin.models import Team
from routes.gateway import snapshot as feeds
from routes.gateway.snapshot import SnapshotFeed
from routes.models import Business, Key, Route, Target
from tests.routes.usage.support import connect_arguments
from tests.support.factories import EngineFactory, HostFactory

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kvadmin-snapshot'"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def shop() -> Business:
    return Business.objects.create(team=Team.objects.create(name="team"), name="shop")


@pytest.fixture
def database() -> Iterator[psycopg.Connection]:
    """Changes things as another program would."""
    with psycopg.connect(**connect_arguments(), autocommit=True) as connection:
        yield connection


def a_key(shop: Business, name: str, **values) -> Key:
    digest = hashlib.sha256(name.encode()).digest()
    return Key.objects.create(business=shop, name=name, digest=digest, **{"public_id": name, **values})


def make_feed(**values) -> SnapshotFeed:
    arguments = {**connect_arguments(), **values.pop("connect", {})}
    return SnapshotFeed(arguments, data_keys=settings.KVADMIN_DATA_KEYS, **values)


@asynccontextmanager
async def following(feed: SnapshotFeed) -> AsyncIterator[SnapshotFeed]:
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        await asyncio.sleep(0.01)


def follow(check, feed: SnapshotFeed | None = None) -> None:
    """Run ``check(feed)`` once a feed is current."""

    async def work():
        async with following(feed or make_feed()) as one:
            await until(lambda: one.state == "current")
            await check(one)

    asyncio.run(work())


def test_a_key_is_known_with_all_its_bounds(shop):
    ends = timezone.now() + timedelta(days=1)
    key = a_key(
        shop,
        "full",
        models=["qwen3-8b"],
        addresses=["10.0.0.0/8", "2001:db8::1"],
        expires_at=ends,
        requests_per_minute=10,
        tokens_per_minute=1000,
        concurrent=3,
        monthly_tokens=2**40,
    )
    plain = a_key(shop, "plain")
    imported = a_key(shop, "old", public_id=None, hint="wxyz")

    async def check(feed):
        found = feed.snapshot.keys["full"]
        assert (found.id, found.team_id, found.business_id) == (key.pk, shop.team_id, shop.pk)
        assert found.models == {"qwen3-8b"}
        assert found.addresses == (ip_network("10.0.0.0/8"), ip_network("2001:db8::1/128"))
        assert found.ends_at == pytest.approx(ends.timestamp(), abs=1e-3)
        assert not found.rotated
        assert found.digest == bytes(key.digest)
        assert (found.requests_per_minute, found.tokens_per_minute) == (10, 1000)
        assert (found.concurrent, found.monthly_tokens) == (3, 2**40)
        assert feed.snapshot.keys["plain"].models is None
        assert feed.snapshot.keys["plain"].ends_at is None
        assert feed.snapshot.imported[bytes(imported.digest)].id == imported.pk
        assert set(feed.snapshot.by_id) == {key.pk, plain.pk, imported.pk}

    follow(check)


def test_states_of_keys(shop):
    now = timezone.now()
    a_key(shop, "disabled", disabled_at=now)
    a_key(shop, "revoked", disabled_at=now, revoked_at=now)
    a_key(shop, "rotated", overlap_ends_at=now + timedelta(hours=1), expires_at=now + timedelta(hours=2))
    a_key(shop, "expiring", overlap_ends_at=now + timedelta(hours=2), expires_at=now + timedelta(hours=1))

    async def check(feed):
        keys = feed.snapshot.keys
        assert (keys["disabled"].state, keys["revoked"].state) == ("disabled", "revoked")
        assert keys["rotated"].rotated
        assert keys["rotated"].ends_at == pytest.approx((now + timedelta(hours=1)).timestamp(), abs=1e-3)
        assert not keys["expiring"].rotated

    follow(check)


def test_an_address_that_cannot_be_read_opens_the_key_to_nobody(shop):
    a_key(shop, "odd", addresses=["not an address"])

    async def check(feed):
        assert feed.snapshot.keys["odd"].addresses == (ip_network("255.255.255.255/32"),)

    follow(check)


def test_changes_are_seen_by_notices(shop, database, monkeypatch):
    # no full read comes to their help
    monkeypatch.setattr(feeds, "CHECK_S", 3600)
    a_key(shop, "one")
    two = a_key(shop, "two")

    async def check(feed):
        keys = feed.snapshot.keys
        kept = keys["one"]
        database.execute("UPDATE routes_key SET revoked_at = now() WHERE id = %s", [two.pk])
        await until(lambda: keys["two"].state == "revoked")
        database.execute(
            "INSERT INTO routes_key (business_id, name, public_id, digest, hint, addresses, created_at)"
            " VALUES (%s, 'new', 'new', 'x', '', '{}', now())",
            [shop.pk],
        )
        await until(lambda: "new" in keys)
        database.execute("DELETE FROM routes_key WHERE public_id = 'new'")
        await until(lambda: "new" not in keys)
        database.execute("UPDATE routes_key SET last_used_at = now()")
        # what did not change stays the same object, so that limits go on
        assert keys["one"] is kept
        database.execute("UPDATE routes_key SET public_id = 'uno' WHERE public_id = 'one'")
        await until(lambda: "uno" in keys)
        assert "one" not in keys

    follow(check)


def test_changes_while_the_feed_was_away_are_seen_when_it_is_back(shop, database, monkeypatch):
    monkeypatch.setattr(feeds, "CHECK_S", 3600)
    for n in range(5):
        a_key(shop, f"key{n}")

    async def check(feed):
        database.execute(CUT)
        database.execute("DELETE FROM routes_key WHERE public_id = 'key3'")
        database.execute("UPDATE routes_key SET disabled_at = now() WHERE public_id = 'key4'")
        await until(lambda: "key3" not in feed.snapshot.keys)
        assert feed.snapshot.keys["key4"].state == "disabled"
        assert len(feed.snapshot.by_id) == 4
        await until(lambda: feed.state == "current")

    follow(check)


def test_a_full_read_finds_what_no_notice_told(shop, database, monkeypatch):
    monkeypatch.setattr(feeds, "CHECK_S", 0.2)
    key = a_key(shop, "one")
    database.execute("ALTER TABLE routes_key DISABLE TRIGGER USER")
    try:

        async def check(feed):
            database.execute("UPDATE routes_key SET concurrent = 7 WHERE id = %s", [key.pk])
            await until(lambda: feed.snapshot.keys["one"].concurrent == 7)
            database.execute("DELETE FROM routes_key")
            await until(lambda: not feed.snapshot.by_id)

        follow(check)
    finally:
        database.execute("ALTER TABLE routes_key ENABLE TRIGGER USER")


def test_a_database_that_goes_leaves_the_feed_stale_and_then_expired(shop, database, monkeypatch):
    a_key(shop, "one")

    async def check(feed):
        # as far as the feed can tell, the database is gone
        feed._arguments["dbname"] = "there_is_none"
        database.execute(CUT)
        await until(lambda: feed.state == "stale")
        assert "one" in feed.snapshot.keys
        feed.stale_max_s = 0.5
        assert feed.state == "expired"
        feed._arguments["dbname"] = connect_arguments()["dbname"]
        await until(lambda: feed.state == "current")

    follow(check)


def test_without_a_database_at_the_start_it_is_loading():
    async def work():
        async with following(make_feed(connect={"dbname": "there_is_none"})) as feed:
            await asyncio.sleep(0.3)
            assert feed.state == "loading"
            assert not feed.snapshot.by_id

    asyncio.run(work())


def test_a_connection_that_delivers_no_notices_is_found_and_said(shop, database, monkeypatch):
    # as behind a pooler by transaction: LISTEN is heard by another backend
    monkeypatch.setattr(feeds, "_listen", lambda channel: feeds.sql.SQL("SELECT 1"))
    monkeypatch.setattr(feeds, "LATE_S", 0.5)
    monkeypatch.setattr(feeds, "CHECK_BLIND_S", 0.2)
    a_key(shop, "one")

    async def work():
        async with following(make_feed()) as feed:
            await until(lambda: feed.problem)
            assert "pooler" in feed.problem
            assert feed.state == "stale"
            # reads go on
            database.execute("UPDATE routes_key SET concurrent = 9")
            await until(lambda: feed.snapshot.keys["one"].concurrent == 9)

    asyncio.run(work())


def test_routes_and_targets(shop, database):
    host = HostFactory(address="10.9.9.9", service_address="fd00::1")
    engine = EngineFactory(
        host=host,
        port=8123,
        observed=EngineState.READY,
        served_names=["served", "other"],
        max_model_len=4096,
        vllm_version="0.32.0",
        api_key="engine-secret",
    )
    backup = Route.objects.create(name="backup")
    route = Route.objects.create(name="qwen3-8b", aliases=["qwen", "backup"], fallback=backup, max_tokens=100)
    Target.objects.create(route=route, engine=engine, weight=3)
    Target.objects.create(route=route, base_url="https://api.example.org/v1/", api_key="outside", model="big")
    Target.objects.create(route=route, base_url="https://off.example.org", enabled=False)
    Target.objects.create(route=backup, base_url="https://plain.example.org")

    async def check(feed):
        routes = feed.snapshot.routes
        assert set(routes) == {"qwen3-8b", "qwen", "backup"}
        assert routes["qwen"] is routes["qwen3-8b"]
        assert routes["backup"].id == backup.pk
        found = routes["qwen"]
        assert (found.fallback, found.max_tokens, found.policy) == ("backup", 100, route.policy)
        ours, outside = found.targets
        assert ours.base_url == engine.base_url == "http://[fd00::1]:8123"
        assert (ours.model, ours.api_key, ours.weight) == ("served", "engine-secret", 3)
        assert (ours.state, ours.max_model_len, ours.vllm_version) == ("ready", 4096, "0.32.0")
        assert (ours.engine_id, ours.name) == (engine.pk, engine.name)
        assert (outside.base_url, outside.api_key) == ("https://api.example.org", "outside")
        assert (outside.model, outside.name, outside.engine_id) == ("big", "api.example.org", None)
        assert routes["backup"].targets[0].model == "backup"
        for observed, state in (
            ("draining", "draining"),
            ("stopping", "draining"),
            ("unreachable", "ready"),
            ("failed", "down"),
            ("loading", "down"),
        ):
            database.execute("UPDATE engines_engine SET observed = %s", [observed])
            await until(lambda state=state: feed.snapshot.routes["qwen"].targets[0].state == state)
        # a name that the route has too is the one that is sent: nothing is renamed then
        database.execute('UPDATE engines_engine SET served_names = \'["served", "qwen3-8b"]\'')
        await until(lambda: feed.snapshot.routes["qwen"].targets[0].model == "qwen3-8b")
        database.execute("UPDATE routes_route SET context_length = 2048 WHERE name = 'qwen3-8b'")
        await until(lambda: feed.snapshot.routes["qwen"].context_length == 2048)
        database.execute("DELETE FROM routes_target WHERE base_url LIKE 'https://api%%'")
        await until(lambda: len(feed.snapshot.routes["qwen"].targets) == 1)

    follow(check)


def test_a_target_whose_key_cannot_be_read_takes_no_requests(shop):
    route = Route.objects.create(name="m")
    Target.objects.create(route=route, base_url="https://api.example.org", api_key="outside")

    async def check(feed):
        (target,) = feed.snapshot.routes["m"].targets
        assert (target.state, target.api_key) == ("down", "")

    lost = SnapshotFeed(
        connect_arguments(), data_keys=["3q2-7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="], stale_max_s=900
    )
    follow(check, lost)
