"""The fleet: a card per engine, kept fresh by one poll of the whole page."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Max, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views import View

from engines.choices import EngineState
from engines.metrics.current import Reading, current_readings, sparklines
from engines.models import Engine, Host, Operation
from kvadmin.numbers import whole_number
from kvadmin.views.base import PermissionView, search_text

TROUBLE = (EngineState.FAILED, EngineState.UNREACHABLE)
#: usage above which a card warns, and above which it is called full (the playbook's bands)
HOT, FULL = 0.9, 0.98


@dataclass
class Card:
    """What one engine's card shows. ``usage`` is 0-1 or None for no data."""

    engine: Engine
    reading: Reading | None
    trend: list[float | None]
    operation: Operation | None

    @property
    def usage(self) -> float | None:
        return self.reading.kv_usage if self.reading and self.engine.observed in SERVING else None

    @property
    def running(self) -> float | None:
        return self.reading.running if self.reading and self.engine.observed in SERVING else None

    @property
    def waiting(self) -> float | None:
        return self.reading.waiting if self.reading and self.engine.observed in SERVING else None

    @property
    def inter_token_ms(self) -> float | None:
        """Median time between two tokens of one answer, ms."""
        if (
            self.reading is None
            or self.reading.inter_token_p50 is None
            or self.engine.observed not in SERVING
        ):
            return None
        return self.reading.inter_token_p50 * 1000

    @property
    def tone(self) -> str:
        """The state's tone; a ready engine with a full cache or a queue warns."""
        if self.engine.observed == EngineState.READY and self.in_trouble:
            return "warn"
        return EngineState(self.engine.observed).tone

    @property
    def in_trouble(self) -> bool:
        if self.engine.observed in TROUBLE:
            return True
        return self.usage is not None and self.usage > HOT and bool(self.waiting)

    @property
    def sentence(self) -> str:
        """What is going on, where a number would leave people guessing."""
        engine = self.engine
        if self.operation is not None and self.operation.progress_text:
            return self.operation.progress_text
        if engine.reason:
            return engine.reason
        if engine.observed == EngineState.UNREACHABLE:
            return _("The host or the engine's port does not answer. Nothing was restarted.")
        if engine.observed in SERVING and (self.reading is None or self.reading.taken_at is None):
            return _("No figures yet: /metrics has not answered.")
        return ""

    @property
    def percent(self) -> int | None:
        """Progress of a start in percent, when it is known."""
        if self.operation is None or self.operation.progress is None:
            return None
        return round(self.operation.progress * 100)


SERVING = (EngineState.READY, EngineState.DRAINING)


@dataclass
class Group:
    title: str
    cards: list[Card] = field(default_factory=list)


@dataclass(frozen=True)
class Filter:
    """What the page's query asks for."""

    view: str = "all"
    text: str = ""
    state: str = ""

    @classmethod
    def of(cls, request: HttpRequest) -> Filter:
        view = request.GET.get("view", "all")
        state = request.GET.get("state", "")
        return cls(
            view=view if view in {"all", "trouble", "host", "model"} else "all",
            text=search_text(request)[:100],
            state=state if state in EngineState.values else "",
        )

    @property
    def query(self) -> dict[str, str]:
        named = {"view": self.view, "q": self.text, "state": self.state}
        return {key: value for key, value in named.items() if value and value != "all"}

    def apply(self, engines: QuerySet[Engine]) -> QuerySet[Engine]:
        if self.text:
            engines = engines.filter(
                Q(name__icontains=self.text)
                | Q(host__name__icontains=self.text)
                | Q(revision__model__icontains=self.text)
                | Q(served_names__icontains=self.text)
            )
        return engines.filter(observed=self.state) if self.state else engines


def make_cards(engines: Iterable[Engine]) -> list[Card]:
    """Cards in the engines' order; three queries however many there are."""
    engines = list(engines)
    ids = [engine.pk for engine in engines]
    readings, trends = current_readings(ids), sparklines(ids)
    operations = {
        operation.engine_id: operation for operation in Operation.objects.active().filter(engine__in=ids)
    }
    return [
        Card(engine, readings.get(engine.pk), trends.get(engine.pk, []), operations.get(engine.pk))
        for engine in engines
    ]


def group_cards(cards: list[Card], view: str) -> list[Group]:
    """One unnamed group, or one for each host or model."""
    if view == "trouble":
        return [Group("", [card for card in cards if card.in_trouble])]
    if view not in {"host", "model"}:
        return [Group("", cards)]
    groups: dict[str, Group] = {}
    for card in cards:
        revision = card.engine.revision
        title = card.engine.host.name if view == "host" else (revision.model if revision else _("Adopted"))
        groups.setdefault(title, Group(title)).cards.append(card)
    return [groups[title] for title in sorted(groups)]


def totals(cards: list[Card]) -> list[tuple[str, str, str]]:
    """The page's figures: (name, value, small print); a dash where nothing is known."""
    ready = sum(card.engine.observed in SERVING for card in cards)
    running = [card.running for card in cards if card.running is not None]
    waiting = [card.waiting for card in cards if card.waiting is not None]
    usages = [card.usage for card in cards if card.usage is not None]
    trouble = sum(card.in_trouble for card in cards)
    gpus = [gpu for host in Host.objects.only("facts") for gpu in host.facts.get("gpus", [])]
    busy = sum(1 for gpu in gpus if (gpu.get("memory_used_mib") or 0) > 1024)
    hot = sum(usage > HOT for usage in usages)
    readings = [card.reading for card in cards if card.reading is not None]
    made = [one.generation_tokens_per_s for one in readings if one.generation_tokens_per_s is not None]
    read = [one.prompt_tokens_per_s for one in readings if one.prompt_tokens_per_s is not None]
    return [
        (
            _("Engines ready"),
            _("%(ready)d of %(all)d") % {"ready": ready, "all": len(cards)},
            ngettext("%(n)d in trouble", "%(n)d in trouble", trouble) % {"n": trouble},
        ),
        (
            _("Requests running"),
            f"{sum(running):,.0f}" if running else "–",
            ngettext("on %(n)d engine", "on %(n)d engines", len(running)) % {"n": len(running)},
        ),
        (
            _("Requests waiting"),
            f"{sum(waiting):,.0f}" if waiting else "–",
            _("for a place in an engine"),
        ),
        (
            _("Tokens out"),
            _("%(n)s/s") % {"n": f"{sum(made):,.0f}"} if made else "–",
            _("prompt %(n)s/s") % {"n": f"{sum(read):,.0f}"} if read else _("over the last minute"),
        ),
        (
            _("KV cache in use"),
            f"{sum(usages) / len(usages):.0%}" if usages else "–",
            ngettext("%(n)d over 90%%", "%(n)d over 90%%", hot) % {"n": hot},
        ),
        (
            _("GPUs in use"),
            _("%(busy)d of %(all)d") % {"busy": busy, "all": len(gpus)} if gpus else "–",
            _("by memory, at the last probe") if gpus else _("no GPU on any host"),
        ),
    ]


def _shape(cards: list[Card]) -> str:
    """Changes when an engine appears, goes, or moves to another group."""
    names = ",".join(f"{c.engine.pk}:{c.in_trouble:d}:{c.engine.revision_id}" for c in cards)
    return hashlib.sha256(names.encode()).hexdigest()[:16]


class FleetView(PermissionView, View):
    """The first page; who sees no engines is shown the models instead."""

    permission = "fleet.view"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        person = request.user
        if request.method == "GET" and person.is_authenticated and not person.may(self.permission):
            return redirect("routes:model_list")
        return super().dispatch(request, *args, **kwargs)

    def _context(self, request: HttpRequest) -> dict[str, Any]:
        filter_ = Filter.of(request)
        engines = Engine.objects.visible_to(request.user).select_related("host", "revision", "current_start")
        everything = make_cards(engines)
        wanted = set(filter_.apply(engines).values_list("pk", flat=True)) if filter_.query else None
        cards = [card for card in everything if wanted is None or card.engine.pk in wanted]
        trouble = sum(card.in_trouble for card in everything)
        return {
            "filter": filter_,
            "groups": group_cards(cards, filter_.view),
            "cards": cards,
            "totals": totals(everything),
            "hosts": Host.objects.visible_to(request.user).count(),
            "engines": len(everything),
            "states": EngineState.choices,
            "views": [
                ("all", _("All")),
                ("trouble", _("Trouble %(n)d") % {"n": trouble} if trouble else _("Trouble")),
                ("host", _("By host")),
                ("model", _("By model")),
            ],
            "since": max((card.engine.seq for card in everything), default=0),
            "shape": _shape(cards),
        }

    def get(self, request: HttpRequest) -> HttpResponse:
        return render(request, "engines/fleet.html", self._context(request))


class FleetCardsView(FleetView):
    """What changed since a number: 204, the changed cards, or the whole grid when its shape changed."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return PermissionView.dispatch(self, request, *args, **kwargs)

    def get(self, request: HttpRequest) -> HttpResponse:
        since = whole_number(request.GET.get("since")) or 0
        if request.GET.get("count") == "0" and not Engine.objects.visible_to(request.user).exists():
            return HttpResponse(status=204)
        newest = Engine.objects.visible_to(request.user).aggregate(n=Max("seq"))["n"] or 0
        if since and newest <= since:
            count = Engine.objects.visible_to(request.user).count()
            if request.GET.get("count") == str(count):
                return HttpResponse(status=204)
        context = self._context(request)
        whole = not since or request.GET.get("shape") != context["shape"]
        context["whole"] = whole
        context["changed"] = [card for card in context["cards"] if card.engine.seq > since]
        return render(request, "engines/_fleet_changes.html", context)


urlpatterns = [
    path("", FleetView.as_view(), name="fleet"),
    path("fleet/cards", FleetCardsView.as_view(), name="fleet_cards"),
]
