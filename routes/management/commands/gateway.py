"""``manage.py gateway``. manage.py calls routes.gateway.main before Django loads; this is for
``manage.py help``."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Runs the gateway on KVADMIN_GATEWAY_PORT until SIGTERM."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        from routes.gateway.main import main

        sys.exit(main([]))
