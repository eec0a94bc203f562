"""The caller's address and scheme: forwarded headers count only from trusted proxies, from the right."""

from __future__ import annotations

import pytest
from django.http import HttpResponse

from kvadmin.forwarded import client_address, client_scheme, parse_networks
from kvadmin.middleware import Forwarded

PROXIES = parse_networks("10.0.0.0/8, fd00::/8, ::ffff:172.16.0.0/108")


@pytest.mark.parametrize(
    ("peer", "chain", "expected"),
    [
        ("203.0.113.9", "", "203.0.113.9"),
        ("203.0.113.9", "1.2.3.4", "203.0.113.9"),
        ("10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.7", "1.2.3.4"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4, nonsense", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4:5555", "1.2.3.4"),
        ("10.0.0.1", '"[2001:db8::1]:443"', "2001:db8::1"),
        ("fd00::1", "2001:db8::2", "2001:db8::2"),
        ("::ffff:10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("172.16.0.9", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "1.2.3.4, ::ffff:172.16.0.1", "1.2.3.4"),
        ("10.0.0.1", "10.0.0.2, 10.0.0.3", "10.0.0.2"),
        ("", "1.2.3.4", ""),
    ],
)
def test_it_reads_the_chain_from_the_right_through_trusted_proxies(peer, chain, expected):
    assert client_address(peer, chain, PROXIES) == expected


@pytest.mark.parametrize(
    ("peer", "said", "expected"),
    [
        ("10.0.0.1", "https", "https"),
        ("10.0.0.1", "http, HTTPS", "https"),
        ("10.0.0.1", "gopher", None),
        ("203.0.113.9", "https", None),
    ],
)
def test_it_takes_the_scheme_from_a_trusted_proxy_only(peer, said, expected):
    assert client_scheme(peer, said, PROXIES) == expected


def answer(rf, settings, peer: str, trusted: list[str]):
    settings.KVADMIN_TRUSTED_PROXIES = trusted
    seen = {}

    def view(request):
        seen.update(ip=request.META["REMOTE_ADDR"], secure=request.is_secure(), meta=dict(request.META))
        response = HttpResponse()
        response.set_cookie("a", "b")
        return response

    request = rf.get(
        "/",
        REMOTE_ADDR=peer,
        headers={"x-forwarded-for": "6.6.6.6, 1.2.3.4", "x-forwarded-proto": "https"},
    )
    return seen, Forwarded(view)(request)


def test_it_gives_views_the_address_and_marks_cookies_secure(rf, settings):
    seen, response = answer(rf, settings, "10.0.0.1", ["10.0.0.0/8"])
    assert (seen["ip"], seen["secure"]) == ("1.2.3.4", True)
    assert response.cookies["a"]["secure"] is True
    assert "HTTP_X_FORWARDED_FOR" not in seen["meta"]


def test_it_believes_nobody_by_default(rf, settings):
    seen, response = answer(rf, settings, "10.0.0.1", [])
    assert (seen["ip"], seen["secure"]) == ("10.0.0.1", False)
    assert not response.cookies["a"]["secure"]


def test_a_header_cannot_pass_itself_off_as_the_scheme(rf, settings):
    settings.KVADMIN_TRUSTED_PROXIES = []
    request = rf.get("/", headers={"kvadmin.scheme": "https", "x-kvadmin-scheme": "https"})
    Forwarded.resolve(request)
    assert not request.is_secure()
