from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from kvadmin.actions import ActionError, Actor
from routes.actions.export_routes import ExportRoutes
from routes.actions.import_routes import ImportRoutes
from routes.models import Route

_ACTOR = Actor(source="command")


class Command(BaseCommand):
    help = (
        "Read and write routes as JSON: one object or a list, with model_name, base_url, max_tokens, timeout."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True, metavar="import|export|list")
        taken = commands.add_parser("import", help="Make routes from a file; all of it or nothing.")
        taken.add_argument("file", help="The file, or - for standard input.")
        taken.add_argument(
            "--replace", action="store_true", help="Overwrite limits and targets of routes that exist."
        )
        given = commands.add_parser("export", help="Write every route, its api_key left out.")
        given.add_argument("file", nargs="?", default="-", help="The file, or - for standard output.")
        commands.add_parser("list", help="List routes with their state and number of targets.")

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        try:
            {"import": self.import_}.get(what, getattr(self, what, self.list))(options)
        except ActionError as error:
            errors = getattr(error, "errors", {})
            lines = [sentence for sentences in errors.values() for sentence in sentences]
            raise CommandError(
                "\n".join([error.message, *(line for line in lines if line != error.message), error.remedy])
            ) from error

    def import_(self, options: dict[str, Any]) -> None:
        name = options["file"]
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{name} cannot be read: {error}") from error
        done = ImportRoutes(_ACTOR, text, replace=options["replace"]).run()
        for note in done.notes:
            self._say(note.text())
        for what, routes in (
            ("made", done.created),
            ("changed", done.changed),
            ("as before", done.unchanged),
        ):
            for route in routes:
                self._say(f"{route.name}: {what}")

    def export(self, options: dict[str, Any]) -> None:
        text = json.dumps(ExportRoutes(_ACTOR).run(), indent=2, ensure_ascii=False)
        if options["file"] == "-":
            self.stdout.write(text)
            return
        try:
            Path(options["file"]).write_text(f"{text}\n")
        except OSError as error:
            raise CommandError(f"{options['file']} cannot be written: {error}") from error
        self._say(f"Wrote {options['file']}. Keys of outside targets are not in it.")

    def list(self, options: dict[str, Any]) -> None:
        for route in Route.objects.with_targets():
            targets = len(route.targets.all())
            self.stdout.write(
                "\t".join([route.name, route.state.value, str(targets), ", ".join(route.aliases)])
            )

    def _say(self, text: str) -> None:
        self.stderr.write(text, lambda said: said)
