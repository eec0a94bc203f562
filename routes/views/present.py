"""What several pages show: the gateway's address, notes with their tone, settings for clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.translation import gettext as _

from engines.vllm.notes import Note, Severity
from routes.clients import PLACEHOLDER, clients

_TONES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFO: "info"}


@dataclass(frozen=True)
class ShownNote:
    text: str
    tone: str


def shown(notes: Iterable[Note]) -> list[ShownNote]:
    return [ShownNote(note.text(_), _TONES[note.severity]) for note in notes]


def gateway_address(request: HttpRequest) -> str:
    """Where callers reach the gateway: as set, else this console's host with the gateway's port. Without
    /v1 and without a slash at its end.
    """
    if settings.KVADMIN_GATEWAY_URL:
        return settings.KVADMIN_GATEWAY_URL.rstrip("/").removesuffix("/v1")
    host = request.get_host()
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return f"{request.scheme}://{name}:{settings.KVADMIN_GATEWAY_PORT}"


def client_settings(request: HttpRequest, model: str, key: str = PLACEHOLDER) -> list[dict[str, Any]]:
    """Each client with its texts, translated: id, title, note, and blocks of id, heading and text."""
    return [
        {
            "id": client.id,
            "title": _(client.title),
            "note": _(client.note) if client.note else "",
            "blocks": [
                {"id": f"{client.id}-{number}", "heading": _(heading), "text": text}
                for number, (heading, text) in enumerate(client.blocks)
            ],
        }
        for client in clients(gateway_address(request), model, key)
    ]
