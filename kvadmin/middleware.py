"""Middleware of every page and endpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from kvadmin.forwarded import SCHEME_KEY, Network, client_address, client_scheme, parse_networks


@lru_cache(maxsize=8)
def _networks(texts: tuple[str, ...]) -> list[Network]:
    return parse_networks(",".join(texts))


class Forwarded:
    """REMOTE_ADDR becomes the caller's address and ``request.scheme`` what the caller used, as far as
    trusted proxies vouch for it. Every cookie of a request over TLS is marked secure. First in the list.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable):
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest):
        if iscoroutinefunction(self):
            return self._answer(request)
        self.resolve(request)
        return self.harden(request, self.get_response(request))

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        self.resolve(request)
        return self.harden(request, await self.get_response(request))

    @staticmethod
    def resolve(request: HttpRequest) -> None:
        meta = request.META
        trusted = _networks(tuple(settings.KVADMIN_TRUSTED_PROXIES))
        peer = meta.get("REMOTE_ADDR", "")
        scheme = client_scheme(peer, meta.get("HTTP_X_FORWARDED_PROTO", ""), trusted)
        if scheme:
            meta[SCHEME_KEY] = scheme
        # what was read is gone, so that nothing behind this reads the chain another way
        meta["REMOTE_ADDR"] = client_address(peer, meta.pop("HTTP_X_FORWARDED_FOR", ""), trusted)

    @staticmethod
    def harden(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request.is_secure():
            for morsel in response.cookies.values():
                morsel["secure"] = True
        return response
