"""Which address a request counts as coming from, and keys that are for some addresses only."""

from __future__ import annotations

import pytest

from kvadmin.forwarded import parse_networks
from routes.gateway.snapshotrows import _networks
from tests.support.gateway import Gateway, run
from tests.support.upstream import Upstream

HERE = "127.0.0.0/8"
INNER = "127.0.0.0/8, 10.0.0.0/8, fd00::/8"


@pytest.mark.parametrize(
    ("proxies", "lines", "seen"),
    [
        # the other end is no proxy of ours: whatever it says of others is its own invention
        ("", ["203.0.113.9"], "127.0.0.1"),
        ("10.0.0.0/8", ["203.0.113.9"], "127.0.0.1"),
        ("10.0.0.0/8", ["10.1.2.3"], "127.0.0.1"),
        # what a caller wrote itself stands left of what the proxy saw
        (HERE, ["203.0.113.9"], "203.0.113.9"),
        (HERE, ["10.1.2.3, 203.0.113.9"], "203.0.113.9"),
        (HERE, ["10.1.2.3, 127.0.0.1, 203.0.113.9"], "203.0.113.9"),
        (HERE, ["203.0.113.9, 10.1.2.3"], "10.1.2.3"),
        # through several of ours
        (INNER, ["203.0.113.9, 10.1.2.3"], "203.0.113.9"),
        (INNER, ["198.51.100.7, 203.0.113.9, 10.1.2.3, 10.9.9.9"], "203.0.113.9"),
        (INNER, ["203.0.113.9, fd00::7"], "203.0.113.9"),
        (INNER, ["10.1.2.3, 10.9.9.9"], "10.1.2.3"),
        # a header that comes several times is one list, in its order
        (INNER, ["198.51.100.7", "203.0.113.9", "10.1.2.3"], "203.0.113.9"),
        (INNER, ["198.51.100.7, 203.0.113.9", "10.1.2.3"], "203.0.113.9"),
        # as proxies write addresses
        (HERE, ["2001:db8::1"], "2001:db8::1"),
        (HERE, ["2001:0DB8:0:0::1"], "2001:db8::1"),
        (HERE, ["[2001:db8::1]:4711"], "2001:db8::1"),
        (HERE, ['"[2001:db8::1]:4711"'], "2001:db8::1"),
        (HERE, ["203.0.113.9:4711"], "203.0.113.9"),
        (HERE, ["::ffff:203.0.113.9"], "203.0.113.9"),
        (HERE, ["  203.0.113.9\t"], "203.0.113.9"),
        # what is no address ends the walk at the last that is known
        (HERE, [""], "127.0.0.1"),
        (HERE, ["unknown"], "127.0.0.1"),
        (HERE, ["203.0.113.9, unknown"], "127.0.0.1"),
        (HERE, ["203.0.113.9,"], "127.0.0.1"),
        (HERE, ["203.0.113.9, 10.1.2"], "127.0.0.1"),
        (HERE, ["203.0.113.9, 010.1.2.3"], "127.0.0.1"),
        (HERE, ["203.0.113.9, \xff\xfe"], "127.0.0.1"),
        (INNER, ["203.0.113.9, _hidden, 10.1.2.3"], "10.1.2.3"),
        (HERE, [", ".join(["203.0.113.9"] * 1000)], "203.0.113.9"),
    ],
)
def test_it_is_the_nearest_machine_that_is_no_proxy_of_ours(proxies, lines, seen):
    async def main():
        async with Upstream() as engine, Gateway(proxies=tuple(parse_networks(proxies))) as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            true = gateway.add_key(addresses=_networks((seen,)))
            wrong = gateway.add_key(addresses=_networks(("198.51.100.7", "10.66.0.0/16", "2001:db8:1::/48")))
            given = [f"X-Forwarded-For: {line}" for line in lines]
            gateway.secret = true
            assert (await gateway.chat(*given)).status == 200
            gateway.secret = wrong
            refused = await gateway.chat(*given)
            assert (refused.status, refused.error["code"]) == (403, "address_not_allowed")
            assert f"from {seen}." in refused.error["message"]
            assert [row.caller for row in gateway.rows] == [seen, seen]
            # nothing of it is told to the engine
            assert "x-forwarded-for" not in engine.calls[0].headers

    run(main())


def test_other_headers_about_the_caller_are_nothing():
    async def main():
        async with Upstream() as engine, Gateway(proxies=tuple(parse_networks(HERE))) as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            for line in ("x-real-ip: 203.0.113.9", "forwarded: for=203.0.113.9", "client-ip: 203.0.113.9"):
                assert (await gateway.chat(line, "x_forwarded_for: 203.0.113.9")).status == 200
            assert [row.caller for row in gateway.rows] == ["127.0.0.1"] * 3

    run(main())


@pytest.mark.parametrize(
    ("allowed", "address", "status"),
    [
        ("203.0.113.0/24", "203.0.113.9", 200),
        ("203.0.113.0/24", "203.0.114.9", 403),
        ("203.0.113.9", "203.0.113.9", 200),
        # a network of IPv6 that stands for one of IPv4
        ("::ffff:203.0.113.0/120", "203.0.113.9", 200),
        ("::ffff:203.0.113.0/120", "::ffff:203.0.113.9", 200),
        ("::ffff:203.0.113.0/120", "203.0.114.9", 403),
        ("::ffff:203.0.113.9", "203.0.113.9", 200),
        ("::ffff:0:0/96", "203.0.113.9", 200),
        ("::ffff:0:0/96", "2001:db8::1", 403),
        ("2001:db8::/32", "2001:db8::1", 200),
        ("2001:db8::/32", "203.0.113.9", 403),
        ("0.0.0.0/0", "2001:db8::1", 403),
        ("nonsense", "203.0.113.9", 403),
    ],
)
def test_a_key_is_for_the_addresses_of_its_networks(allowed, address, status):
    async def main():
        async with Upstream() as engine, Gateway(proxies=tuple(parse_networks(HERE))) as gateway:
            gateway.add_route("qwen3-8b", engine.url)
            gateway.secret = gateway.add_key(addresses=_networks((allowed,)))
            assert (await gateway.chat(f"x-forwarded-for: {address}")).status == status

    run(main())
