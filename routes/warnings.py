"""What does not fit together in a route and its targets, or in a key and the routes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from engines.vllm.notes import Note, Severity, Unreadable, gettext_noop, info, warning
from routes.baseurl import read_base_url
from routes.serving import target_state


@dataclass(frozen=True)
class TargetFacts:
    """``base_url`` is that of an outside target, "" for an engine, whose other facts are then known."""

    name: str
    enabled: bool = True
    base_url: str = ""
    model: str = ""
    served_names: Sequence[str] = ()
    max_model_len: int | None = None
    #: as in engines.choices.EngineState
    state: str = ""


@dataclass(frozen=True)
class RouteFacts:
    name: str
    aliases: Sequence[str] = ()
    enabled: bool = True
    max_tokens: int | None = None
    context_length: int | None = None
    targets: Sequence[TargetFacts] = ()
    fallback: str = ""
    fallback_enabled: bool = True


def route_warnings(route: RouteFacts) -> list[Note]:
    """What an operator should look at, warnings first."""
    enabled = [target for target in route.targets if target.enabled]
    found = [
        *_presence_warnings(route, enabled),
        *(note for target in enabled for note in _target_warnings(target)),
        *_length_warnings(route, enabled),
        *_remarks(route, enabled),
    ]
    return sorted(found, key=lambda note: note.severity == Severity.INFO)


def _presence_warnings(route: RouteFacts, enabled: Sequence[TargetFacts]) -> list[Note]:
    found: list[Note] = []
    if not route.targets:
        found.append(
            warning(
                "no_target",
                gettext_noop("The route has no target: callers get an error."),
                remedy=gettext_noop("Add an engine or an outside URL."),
            )
        )
    elif not enabled:
        found.append(
            warning(
                "targets_disabled",
                gettext_noop("Every target of the route is off: callers get an error."),
                remedy=gettext_noop("Switch one on."),
            )
        )
    if route.fallback and not route.fallback_enabled:
        found.append(
            warning(
                "fallback_off",
                gettext_noop("The fallback route %(name)s is off itself."),
                remedy=gettext_noop("Switch it on, or choose another."),
                name=route.fallback,
            )
        )
    return found


def _target_warnings(target: TargetFacts) -> list[Note]:
    if target.base_url:
        try:
            local = read_base_url(target.base_url).is_loopback
        except Unreadable as mistake:
            return [mistake.note]
        if local:
            return [
                warning(
                    "base_url_localhost",
                    gettext_noop("%(target)s is “localhost”: each gateway takes that for its own machine."),
                    remedy=gettext_noop("Use the server's own name or address, or make it an engine here."),
                    target=target.base_url,
                )
            ]
    elif target.model and target.served_names and target.model not in target.served_names:
        return [
            warning(
                "model_not_served",
                gettext_noop("%(target)s does not serve “%(model)s” but %(served)s."),
                remedy=gettext_noop("Empty the target's model name, or choose one that it serves."),
                target=target.name,
                model=target.model,
                served=", ".join(target.served_names),
            )
        ]
    return []


def _remarks(route: RouteFacts, enabled: Sequence[TargetFacts]) -> list[Note]:
    """What is as it may be and still worth knowing, each for all targets together."""
    engines = [target for target in enabled if not target.base_url]
    renamed = [
        target
        for target in engines
        if target.served_names and route.name not in target.served_names and not target.model
    ]
    waiting = [target for target in engines if target.state and target_state(target.state) == "down"]
    off = [target for target in route.targets if not target.enabled]
    found: list[Note] = []
    if renamed:
        found.append(
            info(
                "served_name_differs",
                gettext_noop(
                    "The model goes by another name (%(served)s) at %(targets)s: the gateway renames it both "
                    "ways, which costs a little with each event of a stream."
                ),
                remedy=gettext_noop("Add “%(route)s” to the profile's served names to spare that."),
                targets=_names(renamed),
                served=", ".join(dict.fromkeys(target.served_names[0] for target in renamed)),
                route=route.name,
            )
        )
    if waiting:
        found.append(
            info(
                "target_not_ready",
                gettext_noop("Not ready, so without requests: %(targets)s."),
                targets=_names(waiting),
            )
        )
    if off and enabled:
        found.append(
            info(
                "some_targets_disabled", gettext_noop("These targets are off: %(names)s."), names=_names(off)
            )
        )
    return found


def _names(targets: Iterable[TargetFacts]) -> str:
    return ", ".join(target.name for target in targets)


def _length_warnings(route: RouteFacts, targets: Iterable[TargetFacts]) -> list[Note]:
    """Where the route's and the engines' limits would cut in one layer and refuse in the other."""
    found: list[Note] = []
    known = [target for target in targets if target.max_model_len]
    shown = {target.max_model_len: _at(known, target.max_model_len) for target in known}
    for length, names in shown.items():
        if route.max_tokens is not None and route.max_tokens > length:
            found.append(
                warning(
                    "max_tokens_above_engine",
                    gettext_noop(
                        "The route lets callers ask for %(tokens)d tokens, but %(target)s takes only "
                        "%(length)d, prompt included: such requests are refused or cut short."
                    ),
                    field="max_tokens",
                    remedy=gettext_noop("Lower the route's max tokens or raise the engine's max-model-len."),
                    tokens=route.max_tokens,
                    target=names,
                    length=length,
                )
            )
        if route.context_length is not None and route.context_length > length:
            found.append(
                warning(
                    "context_above_engine",
                    gettext_noop(
                        "The route promises a context of %(tokens)d tokens, but %(target)s has %(length)d."
                    ),
                    field="context_length",
                    remedy=gettext_noop("Correct the context length, or leave it empty."),
                    tokens=route.context_length,
                    target=names,
                    length=length,
                )
            )
    if len(shown) > 1:
        found.append(
            warning(
                "lengths_differ",
                gettext_noop(
                    "The targets take requests of different lengths (%(lengths)s): a long one works or "
                    "fails by chance."
                ),
                remedy=gettext_noop("Start them with one max-model-len, or give each a route of its own."),
                lengths=", ".join(str(length) for length in sorted(shown)),
            )
        )
    return found


def _at(targets: Iterable[TargetFacts], length: int | None) -> str:
    return _names(target for target in targets if target.max_model_len == length)


def key_warnings(models: Sequence[str] | None, routes: Collection[str], off: Collection[str]) -> list[Note]:
    """About the models that a key names: ``routes`` are all names and aliases, ``off`` those switched off."""
    found: list[Note] = []
    for name in models or ():
        if name not in routes:
            near = get_close_matches(name, routes, n=1, cutoff=0.6)
            found.append(
                warning(
                    "model_unknown",
                    gettext_noop("There is no route named “%(name)s”: calls to it get 404."),
                    field="models",
                    remedy=gettext_noop("Did you mean “%(near)s”?") if near else "",
                    name=name,
                    near=near[0] if near else "",
                )
            )
        elif name in off:
            found.append(
                info("model_off", gettext_noop("The route “%(name)s” is off."), field="models", name=name)
            )
    return found
