"""``manage.py up``. manage.py calls kvadmin.up.main before Django loads; this is for ``manage.py help``."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Starts and supervises everything kvadmin needs on one machine, until Ctrl-C."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        from kvadmin.up.main import main

        sys.exit(main([]))
