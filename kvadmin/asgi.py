"""The console as an ASGI application."""

from __future__ import annotations

import os
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvadmin.settings")

_django = get_asgi_application()


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Django, without a body in answers to HEAD: over HTTP/2 a body there breaks the connection."""
    if scope.get("method") != "HEAD":
        await _django(scope, receive, send)
        return

    async def send_head(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    await _django(scope, receive, send_head)
