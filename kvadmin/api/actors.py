"""Who acts when the management API is called."""

from __future__ import annotations

from rest_framework.request import Request

from kvadmin.actions import Actor
from kvadmin.clientip import client_ip
from kvadmin.models import ManagementToken


def actor_of_call(request: Request) -> Actor:
    """The caller as an action's actor: with the token's id when a token was used."""
    return Actor(
        user=request.user,
        source="api",
        ip=client_ip(request),
        token_id=request.auth.pk if isinstance(request.auth, ManagementToken) else None,
    )
