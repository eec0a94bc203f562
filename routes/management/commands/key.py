from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from kvadmin.actions import ActionError, Actor
from kvadmin.actions.create_team import CreateTeam
from kvadmin.models import Team
from routes import keyformat
from routes.actions.create_business import CreateBusiness
from routes.actions.import_key import ImportKey
from routes.actions.issue_key import IssuedKey, IssueKey
from routes.actions.key_input import LIMITS
from routes.actions.revoke_key import RevokeKey
from routes.actions.rotate_key import DEFAULT_OVERLAP, RotateKey
from routes.facts import warnings_of_key
from routes.models import Business, Key

_ACTOR = Actor(source="command")


class Command(BaseCommand):
    help = "Issue, rotate, revoke and list the keys of the gateway; take over existing secrets."

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(
            dest="what", required=True, metavar="issue|import|rotate|revoke|list"
        )
        issue = commands.add_parser("issue", help="Make a key; it alone is printed on standard output.")
        taken = commands.add_parser(
            "import", help="Take over a secret that callers have already; it is read from standard input."
        )
        for parser_ in (issue, taken):
            self._bounds(parser_)
        rotate = commands.add_parser(
            "rotate", help="Make a successor; it alone is printed on standard output. Both work for a while."
        )
        rotate.add_argument("key", help="Its public id, its number, or its beginning as the list shows it.")
        rotate.add_argument(
            "--overlap-hours",
            type=float,
            default=DEFAULT_OVERLAP / timedelta(hours=1),
            help="How long the old key goes on working (default: %(default)s).",
        )
        rotate.add_argument("--days", type=int, default=None, help="Days until the successor expires.")
        revoke = commands.add_parser("revoke", help="End a key at once and for good.")
        revoke.add_argument("key", help="Its public id, its number, or its beginning as the list shows it.")
        listing = commands.add_parser("list", help="List keys, without their secrets.")
        listing.add_argument("--team", default=None)
        listing.add_argument("--business", default=None)
        listing.add_argument("--all", action="store_true", help="Also those that were revoked or replaced.")

    def _bounds(self, parser: CommandParser) -> None:
        parser.add_argument("--business", required=True, help="Whom the key is for.")
        parser.add_argument("--team", default=None, help="Whose business, if several have one of this name.")
        parser.add_argument(
            "--create", action="store_true", help="Make team and business if they are not there yet."
        )
        parser.add_argument("--name", default="command line", help="Where the key will be used.")
        parser.add_argument(
            "--model",
            action="append",
            default=None,
            help="A model it may call; again for more.",
        )
        parser.add_argument("--days", type=int, default=None, help="Days until it expires (default: never).")
        parser.add_argument(
            "--address", action="append", default=[], help="Where it may come from: an address or a network."
        )
        for limit in LIMITS:
            parser.add_argument(f"--{limit.replace('_', '-')}", type=int, default=None)

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        try:
            {"import": self.import_}.get(what, getattr(self, what, self.list))(options)
        except ActionError as error:
            raise CommandError(_sentences(error)) from error

    def issue(self, options: dict[str, Any]) -> None:
        self._show(IssueKey(_ACTOR, _business(options), **_given(options)).run())

    def import_(self, options: dict[str, Any]) -> None:
        secret = sys.stdin.read()
        if not secret.strip():
            raise CommandError("Give the secret on standard input, for example: … key import … < secret.txt")
        key = ImportKey(_ACTOR, _business(options), secret=secret, **_given(options)).run()
        self._say(f"Imported {key} for {key.business.team} / {key.business}.")
        self._warn(key)

    def rotate(self, options: dict[str, Any]) -> None:
        issued = RotateKey(
            _ACTOR,
            _key(options["key"]),
            overlap=timedelta(hours=options["overlap_hours"]),
            expires_at=_end(options["days"]),
        ).run()
        old = issued.key.predecessor
        self._say(f"{old} works until {old.overlap_ends_at.isoformat(timespec='minutes')}.")
        self._show(issued)

    def revoke(self, options: dict[str, Any]) -> None:
        key = RevokeKey(_ACTOR, _key(options["key"])).run()
        self._say(f"Revoked {key}.")

    def list(self, options: dict[str, Any]) -> None:
        keys = Key.objects.select_related("business__team").order_by(
            "business__team__name", "business__name", "pk"
        )
        if not options["all"]:
            keys = keys.living()
        if options["team"]:
            keys = keys.filter(business__team__name=options["team"])
        if options["business"]:
            keys = keys.filter(business__name=options["business"])
        for key in keys:
            used = key.last_used_at.isoformat(timespec="minutes") if key.last_used_at else "never used"
            fields = [str(key.pk), key.masked, key.business.team.name, key.business.name, key.state.value]
            self.stdout.write("\t".join([*fields, used, key.name]))

    def _show(self, issued: IssuedKey) -> None:
        key = issued.key
        self._say(
            f"Key {key.public_id} for {key.business.team} / {key.business}. "
            "This is the only time it is shown:"
        )
        self._warn(key)
        self.stdout.write(issued.secret)

    def _warn(self, key: Key) -> None:
        for note in warnings_of_key(key):
            self._say(note.text())

    def _say(self, text: str) -> None:
        self.stderr.write(text, lambda said: said)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": options["name"],
        "models": options["model"],
        "expires_at": _end(options["days"]),
        "addresses": options["address"],
        **{limit: options[limit] for limit in LIMITS},
    }


def _end(days: int | None) -> Any:
    if days is None:
        return None
    if not 1 <= days <= 3650:
        raise CommandError("--days is a number from 1 to 3650.")
    return timezone.now() + timedelta(days=days)


def _business(options: dict[str, Any]) -> Business:
    name, team_name = options["business"].strip(), options["team"]
    found = Business.objects.select_related("team").filter(name=name)
    if team_name:
        found = found.filter(team__name=team_name)
    rows = list(found)
    if len(rows) == 1:
        return rows[0]
    if rows:
        teams = ", ".join(row.team.name for row in rows)
        raise CommandError(f"Several teams have a business “{name}” ({teams}): say which by --team.")
    if options["create"]:
        if not team_name:
            raise CommandError("Say by --team whose business it will be.")
        team = Team.objects.filter(name=team_name).first()
        team = team or CreateTeam(_ACTOR, team_name, without_owner=True).run()
        return CreateBusiness(_ACTOR, team, name).run()
    known = ", ".join(f"{row.team} / {row}" for row in Business.objects.select_related("team")[:20])
    raise CommandError(f"There is no business “{name}”. Known: {known or 'none'}. --create makes it.")


def _key(text: str) -> Key:
    """By number, public id, or the key's beginning; a whole key is taken, too, and not said again."""
    text = text.strip().removesuffix("…")
    keys = Key.objects.select_related("business__team")
    public_id = text.removeprefix(keyformat.PREFIX)[: keyformat.PUBLIC_LENGTH]
    key = keys.filter(public_id=public_id).first()
    if key is None and text.isdigit() and len(text) < 19:
        key = keys.filter(pk=int(text)).first()
    if key is None:
        raise CommandError("There is no such key; “key list” shows them with their numbers.")
    return key


def _sentences(error: ActionError) -> str:
    errors = getattr(error, "errors", {})
    found = [sentence for sentences in errors.values() for sentence in sentences] or [error.message]
    return " ".join([*found, *([error.remedy] if error.remedy else [])])
