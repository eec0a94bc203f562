"""The bounds of a key: what they have to satisfy, and how they are audited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from kvadmin.actions.mistakes import Mistakes
from kvadmin.forwarded import unmapped
from routes.models import Key, Route

LONGEST = timedelta(days=3650)
MOST_ADDRESSES = 200
MOST_MODELS = 500

#: limits of a key and their largest values
LIMITS = {
    "requests_per_minute": 2**31 - 1,
    "tokens_per_minute": 2**31 - 1,
    "concurrent": 2**31 - 1,
    "monthly_tokens": 2**53,
}
#: everything of a key that its owner sets
BOUNDS = ("name", "models", "expires_at", "addresses", *LIMITS)


def checked_bounds(given: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Any]:
    """The bounds among ``given``, tidied for storing."""
    unknown = set(given) - set(BOUNDS)
    if unknown:
        raise TypeError(f"no bounds of a key: {sorted(unknown)}")
    found: dict[str, Any] = {}
    if "name" in given:
        found["name"] = str(given["name"] or "").replace("\0", "").strip()
        if not 1 <= len(found["name"]) <= 100:
            mistakes.add(
                "name", _("Give the key a name of 1 to 100 characters, such as where it will be used.")
            )
    if "models" in given:
        found["models"] = _models(given["models"], mistakes)
    if "expires_at" in given:
        found["expires_at"] = _end(given["expires_at"], "expires_at", mistakes)
    if "addresses" in given:
        found["addresses"] = _addresses(given["addresses"] or (), mistakes)
    for name, most in LIMITS.items():
        if name in given:
            value = given[name]
            if value is not None and not 1 <= value <= most:
                mistakes.add(name, _("Give a number of 1 or more, or leave it empty for no limit."))
            found[name] = value
    return found


def _end(value: datetime | None, field: str, mistakes: Mistakes) -> datetime | None:
    if value is not None:
        if value <= timezone.now():
            mistakes.add(field, _("The key would end at once: choose a time to come."))
        elif value > timezone.now() + LONGEST:
            mistakes.add(field, _("Choose a time within ten years, or none."))
    return value


def _models(value: Iterable[str] | None, mistakes: Mistakes) -> list[str] | None:
    """Names of routes; an alias becomes its route's name. A name that no route has yet may stay."""
    if value is None:
        return None
    names = [name for name in dict.fromkeys(str(name).replace("\0", "").strip() for name in value) if name]
    if not names:
        mistakes.add("models", _("Choose at least one model, or all of them."))
    if len(names) > MOST_MODELS or any(len(name) > 200 for name in names):
        mistakes.add("models", _("Name at most 500 models, each with at most 200 characters."))
        return []
    aliases = {
        alias: route.name for route in Route.objects.filter(aliases__overlap=names) for alias in route.aliases
    }
    return list(dict.fromkeys(aliases.get(name, name) for name in names))


def _addresses(value: Iterable[str], mistakes: Mistakes) -> list[str]:
    found: dict[str, None] = {}
    texts = [text.strip() for text in value if text.strip()]
    if len(texts) > MOST_ADDRESSES:
        mistakes.add("addresses", _("Give at most %(most)d addresses.") % {"most": MOST_ADDRESSES})
        return []
    for text in texts:
        try:
            address = ip_address(text.partition("/")[0])
            network = ip_network(text.replace("%", "?"), strict=False)
        except ValueError:
            mistakes.add(
                "addresses",
                _("“%(text)s” is not an address. Examples: 10.1.0.0/16, 192.0.2.7, 2001:db8::/32.")
                % {"text": text[:60]},
            )
            continue
        if address != network.network_address:
            mistakes.add(
                "addresses",
                _("“%(text)s” has digits behind its prefix: %(network)s is meant?")
                % {"text": text[:60], "network": network},
            )
            continue
        found[str(unmapped(network))] = None
    return list(found)


def bounds_of(key: Key) -> dict[str, Any]:
    return {name: getattr(key, name) for name in BOUNDS}


def audited(bounds: Mapping[str, Any]) -> dict[str, Any]:
    """Bounds as JSON values."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in bounds.items()
    }
