from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.utils.translation import gettext as _

from engines.models import Engine
from engines.vllm.notes import Note
from kvadmin.actions import Action, Conflict, Invalid
from routes.actions.route_input import TargetInput, taken_names
from routes.actions.save_route import SaveRoute
from routes.models import Route
from routes.playbook import Entry, read_routes


@dataclass(frozen=True)
class ImportedRoutes:
    created: list[Route]
    changed: list[Route]
    unchanged: list[Route]
    notes: list[Note]


@dataclass
class ImportRoutes(Action[ImportedRoutes]):
    """Routes from the playbook's JSON (routes/playbook.py): all of it or nothing.

    An entry whose base URL is one of our engines becomes that engine's target. A route that exists and
    differs is refused unless ``replace``: then max tokens, the time limit and the targets become the
    file's, and the rest of the route stays. A key that the file leaves out keeps the stored one.
    """

    text: str = field(repr=False)
    replace: bool = False

    verb: ClassVar[str] = "route.import"
    permission: ClassVar[str] = "route.change"

    def check(self) -> None:
        reading = read_routes(self.text)
        if reading.errors:
            raise Invalid(
                _("Nothing was imported."),
                errors={"text": [note.text(_) for note in reading.errors]},
                field="text",
            )
        self._notes = list(reading.notes)
        self._routes: dict[str, list[Entry]] = {}
        for entry in reading.entries:
            self._routes.setdefault(entry.model_name, []).append(entry)
        self._refuse_contradictions()
        self._engines = {engine.base_url: engine for engine in Engine.objects.select_related("host")}
        self._present = {
            route.name: route for route in Route.objects.with_targets().filter(name__in=self._routes)
        }
        aliased = taken_names(list(self._routes), None) - set(self._present)
        if aliased:
            raise Conflict(
                _("Another route has these names as aliases: %(names)s.")
                % {"names": ", ".join(sorted(aliased))},
                code="name_is_alias",
                remedy=_("Take the aliases away there, or leave those entries out."),
            )
        differing = [name for name in self._present if not self._same(name)]
        if differing and not self.replace:
            raise Conflict(
                _("These routes exist and differ: %(names)s.") % {"names": ", ".join(sorted(differing))},
                code="routes_exist",
                remedy=_("Import with “replace” to overwrite their limits and targets."),
            )

    def _refuse_contradictions(self) -> None:
        errors = [
            _("%(name)s: its entries give different values for max_tokens or timeout.") % {"name": name}
            for name, entries in self._routes.items()
            if len({(entry.max_tokens, entry.timeout) for entry in entries}) > 1
        ]
        if errors:
            raise Invalid(_("Nothing was imported."), errors={"text": errors}, field="text")

    def _targets(self, name: str) -> list[TargetInput]:
        """The file's targets of a route; those that are there already keep what the file does not say."""
        present = {}
        if name in self._present:
            for target in self._present[name].targets.all():
                present[target.engine_id or target.base_url] = target
        found: dict[Any, TargetInput] = {}
        for entry in self._routes[name]:
            engine = self._engines.get(entry.base_url)
            old = present.get(engine.pk if engine is not None else entry.base_url)
            found[engine.pk if engine is not None else entry.base_url] = TargetInput(
                engine=engine,
                base_url="" if engine is not None else entry.base_url,
                api_key=None
                if engine is not None or (old is not None and not entry.api_key)
                else entry.api_key,
                model=old.model if old is not None else "",
                weight=old.weight if old is not None else 1,
                enabled=old.enabled if old is not None else True,
                id=old.pk if old is not None else None,
            )
        return list(found.values())

    def _values(self, name: str) -> dict[str, Any]:
        entry = self._routes[name][0]
        values: dict[str, Any] = {}
        if entry.max_tokens is not None:
            values["max_tokens"] = entry.max_tokens
        if entry.timeout is not None:
            values["total_s"] = entry.timeout
            first_byte = self._present[name].first_byte_s if name in self._present else 120.0
            values["first_byte_s"] = min(first_byte, entry.timeout)
        return values

    def _same(self, name: str) -> bool:
        route = self._present[name]
        targets = self._targets(name)
        return (
            all(getattr(route, field) == value for field, value in self._values(name).items())
            and {target.id for target in targets} == {target.pk for target in route.targets.all()}
            and not any(target.api_key for target in targets)
        )

    def execute(self) -> ImportedRoutes:
        done = ImportedRoutes([], [], [], self._notes)
        for name in self._routes:
            present = self._present.get(name)
            if present is not None and self._same(name):
                done.unchanged.append(present)
                continue
            values = {"name": name, **self._values(name)}
            save = SaveRoute(self.actor, present, values, self._targets(name))
            route = save.run()
            (done.created if present is None else done.changed).append(route)
        self.after = {
            what: [route.name for route in routes]
            for what, routes in (("created", done.created), ("changed", done.changed))
        }
        self.changed = bool(done.created or done.changed)
        return done
