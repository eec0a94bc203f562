from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from engines.actions.store_flags import StoreFlags
from engines.flag_lists import FlagsUnreadable, executable_of, read_flags, release_for
from engines.models import Host, VllmEnvironment, VllmFlags
from engines.ssh.errors import HostError
from engines.ssh.session import session_for
from engines.vllm import catalog
from engines.vllm.releases import Source
from engines.vllm.versions import public, version_key
from kvadmin.actions import ActionError, Actor

_ACTOR = Actor(source="command")


class Command(BaseCommand):
    help = "Which flags each version of vLLM has; reads those of an installed one on a host."

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True, metavar="list|show|read|remove")
        commands.add_parser("list", help="Versions of the catalogue, and those read from hosts.")
        show = commands.add_parser("show", help="A version's flags, with their defaults.")
        show.add_argument("version")
        read = commands.add_parser("read", help="Ask the vLLM of a host, and keep its list.")
        read.add_argument("host", help="The host's name in kvadmin.")
        read.add_argument("--version", default="", help="Which of its versions (default: each one unknown).")
        read.add_argument("--again", action="store_true", help="Also versions that are known already.")
        remove = commands.add_parser("remove", help="Forget a list that was read from a host.")
        remove.add_argument("version")

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        getattr(self, what)(options)

    def list(self, options: dict[str, Any]) -> None:
        read = {row.version: row for row in VllmFlags.objects.all()}
        for version in sorted({*catalog.versions(), *read}, key=version_key):
            row = read.get(version)
            where = "catalogue" if row is None else f"{len(row.flags)} flags from {row.read_from}"
            self.stdout.write(f"{version}  {where}")

    def show(self, options: dict[str, Any]) -> None:
        found = release_for(options["version"])
        if found.source is Source.NEAREST:
            self.stderr.write(
                f"vLLM {found.version} is not known: these are the flags of {found.read_from}.",
                lambda text: text,
            )
        for name in sorted(found.flags):
            flag = found.flags[name]
            parts = [name, flag.kind]
            if flag.choices:
                parts.append("{" + ",".join(map(str, flag.choices)) + "}")
            if flag.default not in (None, "", [], {}):
                parts.append(f"default {flag.default}")
            if flag.deprecated:
                parts.append("deprecated")
            self.stdout.write("  ".join(parts))

    def read(self, options: dict[str, Any]) -> None:
        host = Host.objects.filter(name=options["host"]).first()
        if host is None:
            raise CommandError(f"There is no host named {options['host']}.")
        wanted = [one for one in host.environments.filter(usable=True) if _asked(one, options)]
        if not wanted:
            self.stdout.write("Every version installed there is known.")
            return
        for environment in wanted:
            executable = executable_of(environment)
            try:
                flags = read_flags(session_for(host), executable)
                StoreFlags(_ACTOR, host, environment.version, executable, flags).run()
            except HostError as error:
                raise CommandError(f"{host.name}: {error}") from error
            except FlagsUnreadable as error:
                raise CommandError(
                    f"{executable} serve --help=all printed no list of flags: {error}"
                ) from error
            except ActionError as error:
                raise CommandError(error.message) from error
            self.stdout.write(f"vLLM {environment.version}: {len(flags)} flags.")

    def remove(self, options: dict[str, Any]) -> None:
        gone, _rows = VllmFlags.objects.filter(version=options["version"]).delete()
        if not gone:
            raise CommandError(f"No list of vLLM {options['version']} was read from a host.")
        self.stdout.write(f"The list of vLLM {options['version']} is forgotten.")


def _asked(environment: VllmEnvironment, options: dict[str, Any]) -> bool:
    version = environment.version
    if options["version"]:
        return version == options["version"]
    known = public(version) in catalog.versions() or VllmFlags.objects.filter(version=version).exists()
    return options["again"] or not known
