"""How often one token (or one signed-in person) may call."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from kvadmin.models import ManagementToken


class TokenThrottle(SimpleRateThrottle):
    """Reading and writing are counted apart; rates in settings.KVADMIN_API_RATES. Without Valkey all pass."""

    scope = "read"

    def __init__(self) -> None:
        """The rate is known with the request only."""

    def allow_request(self, request: Request, view: Any) -> bool:
        self.scope = "read" if request.method in SAFE_METHODS else "write"
        self.rate = settings.KVADMIN_API_RATES[self.scope]
        self.num_requests, self.duration = self.parse_rate(self.rate)
        return super().allow_request(request, view)

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        if isinstance(request.auth, ManagementToken):
            who = f"token-{request.auth.pk}"
        elif request.user.is_authenticated:
            who = f"user-{request.user.pk}"
        else:
            who = f"address-{self.get_ident(request)}"
        return self.cache_format % {"scope": self.scope, "ident": who}
