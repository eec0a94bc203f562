"""Who sent a request, when proxies stand in between. Pure.

A proxy appends the address it saw to X-Forwarded-For, so the chain is only as true as the machines on
its right: it is read from the right, and only through proxies that are trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

#: where the scheme that a trusted proxy reports stands in request.META; no header can be called that
SCHEME_KEY = "kvadmin.scheme"

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address


def unmapped(network: Network) -> Network:
    """The IPv4 network that one of IPv6 maps (::ffff:10.0.0.0/104), else the network itself: addresses are
    compared as IPv4 wherever they are that."""
    if isinstance(network, IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - 96))
    return network


def parse_networks(text: str) -> list[Network]:
    """Comma-separated CIDRs or addresses. ValueError names the one that is none."""
    networks = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            networks.append(unmapped(ip_network(part)))
        except ValueError:
            try:
                outer = ip_network(part, strict=False)
            except ValueError:
                raise ValueError(f"{part!r} is no network") from None
            raise ValueError(f"{part!r} has bits set past its prefix ({outer} is meant?)") from None
    return networks


def parse_address(text: str) -> Address | None:
    """An address as proxies write it: bare, bracketed, or with a port; IPv4 in IPv6 comes out as IPv4."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_trusted(address: Address | None, trusted: Sequence[Network]) -> bool:
    return address is not None and any(address in network for network in trusted)


def client_address(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """The address of the nearest machine that is not a trusted proxy.

    ``peer`` is the connection's other end. An entry that is no address ends the walk: what lies left of
    it was not written by anyone who is trusted.
    """
    current = parse_address(peer)
    if current is None:
        return peer
    chain = forwarded_for.split(",") if forwarded_for.strip() else []
    while chain and is_trusted(current, trusted):
        before = parse_address(chain.pop())
        if before is None:
            break
        current = before
    return str(current)


def client_scheme(peer: str, forwarded_proto: str, trusted: Sequence[Network]) -> str | None:
    """http or https as the proxy next to us says; None when it is not trusted or says nothing."""
    if not is_trusted(parse_address(peer), trusted):
        return None
    said = forwarded_proto.rpartition(",")[2].strip().lower()
    return said if said in {"http", "https"} else None
