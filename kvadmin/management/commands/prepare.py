"""``manage.py prepare``: what has to be done once before the processes start, and after an upgrade."""

from __future__ import annotations

import json
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import connection

from kvadmin.actions import Actor
from kvadmin.actions.create_first_administrator import CreateFirstAdministrator, new_password
from kvadmin.catalogues import compile_catalogues
from kvadmin.collect import collect
from kvadmin.env import environment
from kvadmin.models import User

#: only one console at a time migrates a shared database; any number that nobody else uses
LOCK = 5_121_881


class Command(BaseCommand):
    help = (
        "Runs migrations, compiles translations, collects static files and makes the first administrator. "
        "The last line of its output is JSON; it holds the password if one was made."
    )
    requires_migrations_checks = False

    def handle(self, *args: Any, **options: Any) -> None:
        done: dict[str, Any] = {}
        with connection.cursor() as cursor:
            cursor.execute("select pg_advisory_lock(%s)", [LOCK])
            try:
                call_command("migrate", interactive=False, verbosity=0)
                done |= self.first_administrator()
            finally:
                cursor.execute("select pg_advisory_unlock(%s)", [LOCK])
        done["catalogues"] = compile_catalogues()
        done["collected"] = collect()
        self.stdout.write(json.dumps(done))

    @staticmethod
    def first_administrator() -> dict[str, Any]:
        if User.objects.exists():
            return {"administrator": "exists"}
        given = environment().admin_password
        password = given or new_password()
        CreateFirstAdministrator(Actor(source="command"), password=password, generated=not given).run()
        return {"administrator": "created"} | ({} if given else {"password": password})
