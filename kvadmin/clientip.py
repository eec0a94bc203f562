"""Where a request came from, through trusted proxies only."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest


def _address(text: str) -> str | None:
    try:
        return str(ip_address(text.strip().strip("[]")))
    except ValueError:
        return None


def client_ip(request: HttpRequest) -> str | None:
    """The caller's address: the forwarded chain read from the right, as long as each hop is a trusted
    proxy. A header that a stranger sent is never believed. None when the peer has no address.
    """
    peer = _address(request.META.get("REMOTE_ADDR", ""))
    trusted = [ip_network(cidr, strict=False) for cidr in settings.KVADMIN_TRUSTED_PROXIES]
    chain = [part for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if part.strip()]
    while peer is not None and chain and any(ip_address(peer) in net for net in trusted):
        hop = _address(chain.pop())
        if hop is None:
            break
        peer = hop
    return peer
