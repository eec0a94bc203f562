"""A small OpenID Connect provider on loopback: discovery, authorize, token, keys, userinfo.

It is as strict as a real one about the client, its secret, the redirect address, the code and PKCE, and
signs its tokens with an RSA key. Whoever comes is ``person``; nobody is asked for a password.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT_ID = "kvadmin"
CLIENT_SECRET = "s3cret-of-the-test-client"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass
class Provider:
    """What the tests change: who signs in, what is published, what goes wrong."""

    address: str = ""
    person: dict[str, Any] = field(default_factory=dict)
    discovery_changes: dict[str, Any] = field(default_factory=dict)
    keys: bool = True
    refuse: bool = False
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def discovery(self) -> dict[str, Any]:
        document = {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "userinfo_endpoint": f"{self.address}/userinfo",
            "jwks_uri": f"{self.address}/keys",
            "response_types_supported": ["code"],
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
            **self.discovery_changes,
        }
        return {name: value for name, value in document.items() if value is not None}

    def published_keys(self) -> dict[str, Any]:
        numbers = self.key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "one", "alg": "RS256", "use": "sig", "n": number(numbers.n)}
        return {"keys": [{**key, "e": number(numbers.e)}] if self.keys else []}

    def signed(self, claims: dict[str, Any]) -> str:
        header = b64(json.dumps({"alg": "RS256", "kid": "one", "typ": "JWT"}).encode())
        body = f"{header}.{b64(json.dumps(claims).encode())}"
        return f"{body}.{b64(self.key.sign(body.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def authorize(self, query: dict[str, str]) -> tuple[int, str]:
        """(status, where to)."""
        if query.get("client_id") != CLIENT_ID or query.get("response_type") != "code":
            return 400, ""
        back = {"state": query["state"]}
        if self.refuse:
            back["error"] = "access_denied"
        else:
            back["code"] = secrets.token_urlsafe(16)
            self.codes[back["code"]] = query
        return 302, f"{query['redirect_uri']}?{urlencode(back)}"

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self.codes.pop(form.get("code", ""), None)
        if form.get("client_id") != CLIENT_ID or form.get("client_secret") != CLIENT_SECRET:
            return 401, {"error": "invalid_client"}
        challenge = b64(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if (
            asked is None
            or asked["redirect_uri"] != form.get("redirect_uri")
            or asked.get("code_challenge") != challenge
        ):
            return 400, {"error": "invalid_grant"}
        access = secrets.token_urlsafe(16)
        self.tokens.add(access)
        now = int(time.time())
        claims = {"iss": self.address, "aud": CLIENT_ID, "iat": now, "exp": now + 300, **self.person}
        return 200, {"access_token": access, "token_type": "Bearer", "id_token": self.signed(claims)}


class Handler(BaseHTTPRequestHandler):
    provider: Provider

    def log_message(self, *args: object) -> None:
        """Quiet."""

    def answer(self, status: int, document: dict[str, Any] | None = None, *, location: str = "") -> None:
        body = json.dumps(document or {}).encode()
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/.well-known/openid-configuration":
            self.answer(200, self.provider.discovery())
        elif parts.path == "/keys":
            self.answer(200, self.provider.published_keys())
        elif parts.path == "/authorize":
            status, location = self.provider.authorize(dict(parse_qsl(parts.query)))
            self.answer(status, location=location)
        elif parts.path == "/userinfo":
            known = self.headers.get("Authorization", "").removeprefix("Bearer ") in self.provider.tokens
            self.answer(200 if known else 401, self.provider.person if known else {})
        else:
            self.answer(404)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        status, document = self.provider.token({name: values[0] for name, values in form.items()})
        self.answer(status, document)


@contextmanager
def running_provider() -> Iterator[Provider]:
    provider = Provider()
    handler = type("BoundHandler", (Handler,), {"provider": provider})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    provider.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def provider_settings(address: str) -> dict[str, Any]:
    """SOCIALACCOUNT_PROVIDERS as kvadmin.settings makes it."""
    app = {
        "provider_id": "oidc",
        "name": "Example login",
        "client_id": CLIENT_ID,
        "secret": CLIENT_SECRET,
        "settings": {"server_url": address},
    }
    return {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}
