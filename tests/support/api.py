"""Calling the management API in tests as a script would: with a token and JSON."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from kvadmin.actions import Actor
from kvadmin.actions.issue_token import IssueToken
from kvadmin.models import User

BASE = "/api/manage/v1/"


class Api:
    """A script's view of the API: ``Api(user).post("hosts/", {...})``. ``scope=None`` sends no token."""

    def __init__(self, user: User | None = None, scope: str | None = "write", **headers: str):
        self.client = Client(raise_request_exception=True)
        self.headers = dict(headers)
        if user is not None and scope is not None:
            issued = IssueToken(Actor(), user=user, name="test", scope=scope).run()
            self.token = issued.token
            self.headers["Authorization"] = f"Bearer {issued.secret}"

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        path = path if path.startswith(("/", "http")) else BASE + path
        return self.client.generic(
            method,
            path,
            b"" if body is None else json.dumps(body).encode(),
            content_type="application/json",
            headers={**self.headers, **headers},
        )

    def get(self, path: str, **headers: str) -> Any:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.call("POST", path, body if body is not None else {}, **headers)

    def patch(self, path: str, body: Any, **headers: str) -> Any:
        return self.call("PATCH", path, body, **headers)

    def put(self, path: str, body: Any, **headers: str) -> Any:
        return self.call("PUT", path, body, **headers)

    def delete(self, path: str, **headers: str) -> Any:
        return self.call("DELETE", path, **headers)


def assert_problem(response: Any, status: int, code: str, field: str | None = None) -> dict[str, Any]:
    """The response is a complete problem with this status and code (and names this field)."""
    assert response.status_code == status, response.content[:500]
    assert response["Content-Type"].partition(";")[0] == "application/problem+json"
    body = response.json()
    assert set(body) == {"type", "title", "status", "detail", "code", "remedy", "errors"}
    assert body["status"] == status
    assert body["code"] == code
    assert body["type"] == f"urn:kvadmin:problem:{code}"
    assert body["detail"]
    if field is not None:
        assert field in body["errors"], body["errors"]
    return body
