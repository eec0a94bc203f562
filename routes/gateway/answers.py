"""What the gateway answers, by method and path alone. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

API_PATH = re.compile(r"^/(?:api/)?v1(?:/|$)")


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def as_json(status: int, value: Any, **headers: str) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"content-type": "application/json", **headers})


def error(status: int, message: str, code: str, kind: str = "invalid_request_error") -> Answer:
    """An error in OpenAI's shape; ``layer`` says that it is the gateway's own."""
    inner = {"message": message, "type": kind, "param": None, "code": code, "layer": "gateway"}
    return as_json(status, {"error": inner})


def answer(method: str, path: str, *, database_ok: bool) -> Answer:
    """``path`` is without its query."""
    if path in {"/healthz", "/readyz"}:
        if method not in {"GET", "HEAD"}:
            return error(405, f"{path} answers GET only.", "method_not_allowed")
        if path == "/healthz":
            return as_json(200, {"status": "ok"})
        checks = {"database": "ok" if database_ok else "does not answer"}
        state = "ready" if database_ok else "not ready"
        return as_json(200 if database_ok else 503, {"status": state, "checks": checks})
    if API_PATH.match(path):
        return error(
            404, "No route is configured on this gateway: it serves no model yet.", "route_not_found"
        )
    return error(404, f"The gateway serves /v1 and nothing at {path[:200]}.", "path_not_found")


def head(found: Answer, request_id: str, *, keep_alive: bool) -> bytes:
    """Status line and headers, up to and with the empty line."""
    lines = [f"HTTP/1.1 {found.status} {HTTPStatus(found.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in found.headers.items()]
    lines += [f"content-length: {len(found.body)}", f"x-request-id: {request_id}", "cache-control: no-store"]
    lines.append(f"connection: {'keep-alive' if keep_alive else 'close'}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
