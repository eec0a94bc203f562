"""Where a request came from."""

from __future__ import annotations

from ipaddress import ip_address

from django.http import HttpRequest


def client_ip(request: HttpRequest) -> str | None:
    """The caller's address (kvadmin.middleware.Forwarded has put it into REMOTE_ADDR, through trusted
    proxies only); None behind a UNIX socket.
    """
    try:
        return str(ip_address(request.META.get("REMOTE_ADDR", "")))
    except ValueError:
        return None
