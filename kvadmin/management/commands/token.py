from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from kvadmin.actions import ActionError, Actor
from kvadmin.actions.issue_token import IssueToken
from kvadmin.actions.revoke_token import RevokeToken
from kvadmin.models import ManagementToken, User
from kvadmin.models.token import TokenScope

_ACTOR = Actor(source="command")


class Command(BaseCommand):
    help = "Make, list and revoke tokens of the management API."

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True, metavar="issue|list|revoke")
        issue = commands.add_parser("issue", help="Make a token; it alone is printed on standard output.")
        issue.add_argument("--user", required=True, help="Whose token: it may do what this person may.")
        issue.add_argument("--scope", choices=TokenScope.values, default=TokenScope.READ.value)
        issue.add_argument("--name", default="command line", help="What will use it.")
        issue.add_argument("--days", type=int, default=None, help="Days until it expires (default: never).")
        listing = commands.add_parser("list", help="List tokens, without their secrets.")
        listing.add_argument("--user", default=None)
        revoke = commands.add_parser("revoke", help="Revoke a token at once.")
        revoke.add_argument("token", help="Its public id, or its beginning as the list shows it.")

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        try:
            getattr(self, what)(options)
        except ActionError as error:
            raise CommandError(" ".join(filter(None, [error.message, error.remedy]))) from error

    def issue(self, options: dict[str, Any]) -> None:
        days = options["days"]
        if days is not None and not 1 <= days <= 3650:
            raise CommandError("--days is a number from 1 to 3650.")
        issued = IssueToken(
            _ACTOR,
            user=_person(options["user"]),
            name=options["name"],
            scope=options["scope"],
            expires_at=timezone.now() + timedelta(days=days) if days else None,
        ).run()
        self.stderr.write(
            f"Token {issued.token.public_id} for {issued.token.user} ({issued.token.get_scope_display()}). "
            "This is the only time it is shown:",
            lambda text: text,
        )
        self.stdout.write(issued.secret)

    def list(self, options: dict[str, Any]) -> None:
        tokens = ManagementToken.objects.select_related("user")
        if options["user"]:
            tokens = tokens.filter(user=_person(options["user"]))
        for token in tokens:
            self.stdout.write(
                "\t".join(
                    [
                        token.public_id,
                        token.user.get_username(),
                        token.scope,
                        _state(token),
                        token.last_used_at.isoformat(timespec="minutes")
                        if token.last_used_at
                        else "never used",
                        token.name,
                    ]
                )
            )

    def revoke(self, options: dict[str, Any]) -> None:
        public_id = options["token"].removeprefix(ManagementToken.PREFIX).partition("_")[0]
        token = ManagementToken.objects.filter(public_id=public_id).first() if public_id else None
        if token is None:
            raise CommandError("There is no such token; “token list” shows the ids.")
        RevokeToken(_ACTOR, token=token).run()
        self.stderr.write(f"Revoked {token}.", lambda text: text)


def _person(username: str) -> User:
    try:
        return User.objects.get(username=username)
    except User.DoesNotExist:
        names = ", ".join(User.objects.filter(is_active=True).values_list("username", flat=True)[:20])
        raise CommandError(f"There is no user “{username}”. Known: {names or 'none'}.") from None


def _state(token: ManagementToken) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is None:
        return "usable"
    if token.expires_at <= timezone.now():
        return "expired"
    return f"until {token.expires_at.date().isoformat()}"
