"""A route's settings: what they have to satisfy, and how they are audited."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from engines.models import Engine
from engines.vllm.notes import Unreadable
from kvadmin.actions.mistakes import Mistakes
from kvadmin.crypto import has_secret
from routes import naming
from routes.baseurl import read_base_url
from routes.choices import MaxTokensRule, Policy
from routes.models import Route, Target

MOST_TARGETS = 200
MOST_ALIASES = 50
TIMES = {"connect_s": 300.0, "first_byte_s": 86400.0, "idle_s": 86400.0, "total_s": 7 * 86400.0}
#: everything of a route that is set, besides its targets
SETTINGS = (
    "name", "aliases", "description", "enabled", "policy", "max_tokens", "max_tokens_rule", *TIMES,
    "fallback", "continuous_usage", "auto_join", "context_length", "price",
)  # fmt: skip
PRICES = ("prompt", "cached", "completion")


@dataclass(frozen=True)
class TargetInput:
    """A target as it should be; ``id`` is that of a present one. An ``api_key`` of None keeps the stored."""

    engine: Engine | None = None
    base_url: str = ""
    api_key: str | None = field(default=None, repr=False)
    model: str = ""
    weight: int = 1
    enabled: bool = True
    id: int | None = None


def taken_names(names: Sequence[str], besides: int | None) -> set[str]:
    """Those that another route has as its name or as an alias."""
    others = Route.objects.exclude(pk=besides)
    found = set(others.filter(name__in=names).values_list("name", flat=True))
    for aliases in others.filter(aliases__overlap=list(names)).values_list("aliases", flat=True):
        found |= {alias for alias in aliases if alias in names}
    return found


def check_route(route: Route, mistakes: Mistakes) -> None:
    """Check an unsaved route's settings, tidying blanks."""
    route.name = route.name.replace("\0", "").strip()
    if not route.name:
        mistakes.add("name", _("Give the route the model name that callers will use."))
    elif not naming.is_name(route.name):
        mistakes.add(
            "name", _("A model name has letters, digits and . _ - : / @ +, no blanks. Example: qwen3-8b-v1.")
        )
    _check_aliases(route, mistakes)
    route.description = route.description.replace("\0", "").strip()
    if len(route.description) > 1000:
        mistakes.add("description", _("Use at most 1,000 characters."))
    if route.policy not in Policy.values:
        mistakes.add("policy", _("Choose one of the ways to choose a target."))
    if route.max_tokens_rule not in MaxTokensRule.values:
        mistakes.add("max_tokens_rule", _("Choose one of the rules."))
    for name in ("max_tokens", "context_length"):
        value = getattr(route, name)
        if value is not None and not 1 <= value < 2**31:
            mistakes.add(name, _("Give a number of 1 or more, or leave it empty for no limit."))
    _check_times(route, mistakes)
    _check_fallback(route, mistakes)
    _check_price(route, mistakes)


def _check_aliases(route: Route, mistakes: Mistakes) -> None:
    aliases = [alias for alias in dict.fromkeys(str(alias).strip() for alias in route.aliases) if alias]
    route.aliases = [alias for alias in aliases if alias != route.name]
    wrong = [alias for alias in route.aliases if not naming.is_name(alias)]
    if wrong:
        mistakes.add("aliases", _("“%(name)s” cannot be a model name.") % {"name": wrong[0][:60]})
        return
    if len(route.aliases) > MOST_ALIASES:
        mistakes.add("aliases", _("Give at most %(most)d aliases.") % {"most": MOST_ALIASES})
    taken = taken_names(route.names, route.pk)
    if route.name in taken:
        mistakes.add("name", _("Another route has this name or alias."))
    for alias in sorted(taken - {route.name}):
        mistakes.add("aliases", _("Another route has “%(name)s” as its name or alias.") % {"name": alias})


def _check_times(route: Route, mistakes: Mistakes) -> None:
    for name, most in TIMES.items():
        value = getattr(route, name)
        if value is None or not math.isfinite(value) or not 0 < value <= most:
            mistakes.add(name, _("Give a number of seconds above 0, at most %(most)d.") % {"most": int(most)})


def _check_fallback(route: Route, mistakes: Mistakes) -> None:
    seen = {route.pk} if route.pk else set()
    hop = route.fallback
    while hop is not None:
        if hop.pk in seen:
            mistakes.add("fallback", _("These fallback routes lead back to this route."))
            return
        seen.add(hop.pk)
        hop = hop.fallback


def _check_price(route: Route, mistakes: Mistakes) -> None:
    price = route.price
    if not price:
        route.price = None
        return
    if not isinstance(price, Mapping) or set(price) - {"currency", *PRICES}:
        mistakes.add("price", _("A price has a currency and amounts for prompt, cached and completion."))
        return
    currency = str(price.get("currency") or "").strip().upper()
    amounts = {name: price[name] for name in PRICES if price.get(name) is not None}
    if not amounts:
        route.price = None
        return
    if not (2 <= len(currency) <= 8 and currency.isalpha()):
        mistakes.add("price", _("Give the price's currency, such as EUR."))
    if any(
        isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9
        for value in amounts.values()
    ):
        mistakes.add("price", _("A price is a number of 0 or more, for a million tokens."))
    route.price = {"currency": currency, **amounts}


def check_targets(route: Route, targets: Sequence[TargetInput], mistakes: Mistakes) -> list[Target]:
    """Unsaved targets as they should be; a wrong one is named by its place: ``targets.0.base_url``."""
    if len(targets) > MOST_TARGETS:
        mistakes.add("targets", _("Give at most %(most)d targets.") % {"most": MOST_TARGETS})
        return []
    present = {target.pk: target for target in route.targets.all()} if route.pk else {}
    engines: set[int] = set()
    found = []
    for place, given in enumerate(targets):
        where = f"targets.{place}"
        if given.id is not None and given.id not in present:
            mistakes.add(where, _("This target is gone: somebody else removed it."))
            continue
        target = present[given.id] if given.id is not None else Target()
        old_url = target.base_url
        target.engine, target.weight, target.enabled = given.engine, given.weight, given.enabled
        target.model = given.model.replace("\0", "").strip()
        target.base_url = ""
        if len(target.model) > 300:
            mistakes.add(f"{where}.model", _("Use at most 300 characters."))
        if not 1 <= given.weight <= 1000:
            mistakes.add(f"{where}.weight", _("A weight is a number from 1 to 1000."))
        if given.engine is not None:
            if given.base_url.strip():
                mistakes.add(where, _("A target is an engine or an outside URL, not both."))
            if given.engine.pk in engines:
                mistakes.add(
                    where, _("%(engine)s is among the targets twice.") % {"engine": given.engine.name}
                )
            engines.add(given.engine.pk)
            target.api_key = ""
        else:
            try:
                target.base_url = read_base_url(given.base_url).text
            except Unreadable as mistake:
                mistakes.add(f"{where}.base_url", mistake.note.text(_))
            _set_key(target, given, old_url, where, mistakes)
        found.append(target)
    return found


def _set_key(target: Target, given: TargetInput, old_url: str, where: str, mistakes: Mistakes) -> None:
    if given.api_key is None:
        # a stored key goes only where it was meant to go
        moved = target.pk is not None and old_url != target.base_url
        if moved and has_secret(target, "api_key") and not mistakes.errors:
            mistakes.add(f"{where}.api_key", _("The address changed: enter the key for it, or empty it."))
        return
    key = given.api_key.strip()
    if len(key) > 4000 or any(not "!" <= letter <= "~" for letter in key):
        mistakes.add(f"{where}.api_key", _("A key has no blanks and no characters beyond ASCII."))
    target.api_key = "" if key.upper() == "EMPTY" else key


def picture(route: Route) -> dict[str, Any]:
    """A route for the audit, without its targets' keys."""
    shown = {name: getattr(route, name) for name in SETTINGS}
    shown["fallback"] = route.fallback.name if route.fallback is not None else None
    shown["targets"] = [
        {
            "target": str(target),
            "model": target.model,
            "weight": target.weight,
            "enabled": target.enabled,
            **({"has_key": has_secret(target, "api_key")} if target.base_url else {}),
        }
        for target in route.targets.select_related("engine").order_by("pk")
    ]
    return shown
