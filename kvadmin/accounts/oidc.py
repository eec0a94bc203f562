"""A test of the OpenID Connect provider: reads what it publishes and says what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from django.utils.translation import gettext as _

WELL_KNOWN = "/.well-known/openid-configuration"
NEEDED = ("issuer", "authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")


@dataclass(frozen=True)
class Check:
    """One sentence of the test; ``tone`` is ok, warn or bad."""

    tone: str
    title: str
    text: str = ""


def discovery_url(server_url: str) -> str:
    return server_url if "/.well-known/" in server_url else server_url.rstrip("/") + WELL_KNOWN


def _fetch(client: httpx.Client, url: str) -> tuple[Any, str]:
    """The JSON behind an address, or a sentence about why there is none."""
    host = urlsplit(url).netloc
    try:
        answer = client.get(url)
    except httpx.ConnectError as error:
        if "certificate" in str(error).lower():
            return None, _("%(host)s has a certificate that this machine does not trust.") % {"host": host}
        return None, _(
            "%(host)s cannot be reached from here: check the name, the firewall and the proxy."
        ) % {"host": host}
    except httpx.TimeoutException:
        return None, _("%(host)s did not answer within 10 seconds.") % {"host": host}
    except httpx.HTTPError as error:
        return None, _("The answer of %(host)s could not be read: %(error)s.") % {
            "host": host,
            "error": type(error).__name__,
        }
    if answer.status_code != 200:
        return None, _("%(url)s answers with status %(status)s instead of 200.") % {
            "url": url,
            "status": answer.status_code,
        }
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return None, _("%(url)s answers, but not with a JSON document. Is this the provider's address?") % {
            "url": url
        }
    return document, ""


def check_provider(server_url: str) -> list[Check]:
    """Read the discovery document and the keys; every sentence names what to do."""
    checks: list[Check] = []
    url = discovery_url(server_url)
    with httpx.Client(timeout=10, follow_redirects=True) as client:
        document, problem = _fetch(client, url)
        if document is None:
            remedy = _("The address is KVADMIN_OIDC_SERVER_URL plus %(path)s.") % {"path": WELL_KNOWN}
            return [Check("bad", _("No discovery document"), f"{problem} {remedy}")]
        checks.append(Check("ok", _("Discovery document"), url))
        missing = [name for name in NEEDED if not document.get(name)]
        if missing:
            checks.append(
                Check(
                    "bad",
                    _("The document is incomplete"),
                    _("It lacks: %(names)s. Is this an OpenID Connect provider?")
                    % {"names": ", ".join(missing)},
                )
            )
            return checks
        issuer, expected = str(document["issuer"]).rstrip("/"), url.removesuffix(WELL_KNOWN).rstrip("/")
        if issuer != expected:
            checks.append(
                Check(
                    "warn",
                    _("The issuer has another address"),
                    _("The provider calls itself %(issuer)s. Use that as KVADMIN_OIDC_SERVER_URL.")
                    % {"issuer": issuer},
                )
            )
        if any(urlsplit(str(document[name])).scheme != "https" for name in NEEDED[1:]):
            checks.append(
                Check(
                    "warn",
                    _("Without encryption"),
                    _("Some of the provider's addresses are plain http://. Fit for a test only."),
                )
            )
        keys, problem = _fetch(client, str(document["jwks_uri"]))
        if keys is None or not keys.get("keys"):
            checks.append(Check("bad", _("No keys"), problem or _("The provider publishes no signing keys.")))
            return checks
    checks.append(Check("ok", _("Signing keys"), _("The provider publishes keys to check its answers with.")))
    if "code" not in document.get("response_types_supported", ["code"]):
        checks.append(
            Check("bad", _("No code flow"), _("Allow the authorization code flow at the provider."))
        )
    checks.append(
        Check(
            "ok",
            _("What cannot be tested from here"),
            _(
                "Whether the client, its secret and the callback address are right shows at the first "
                "sign-in."
            ),
        )
    )
    return checks
