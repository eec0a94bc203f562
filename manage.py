#!/usr/bin/env python3
"""Django's command line, for kvadmin."""

import os
import sys

#: commands that start in a moment because they do not load Django
PLAIN = {"up": "kvadmin.up.main", "gateway": "routes.gateway.main"}


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 (this file is what an older Python meets first)
        print(
            f"kvadmin needs Python 3.11 or newer and this is {sys.version.split()[0]} ({sys.executable}). "
            "Install python3.11 and run `make run`, which uses it.",
            file=sys.stderr,
        )
        return 1
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvadmin.settings")
    try:
        from kvadmin.env import EnvironmentMistakes
    except ImportError as missing:
        print(
            f"kvadmin's packages are not complete here ({missing.name} is missing). Run `make run`, which "
            "installs them into .venv, or use .venv/bin/python.",
            file=sys.stderr,
        )
        return 1
    try:
        if sys.argv[1:2] and sys.argv[1] in PLAIN and not {"-h", "--help"} & set(sys.argv):
            from importlib import import_module

            return import_module(PLAIN[sys.argv[1]]).main(sys.argv[2:])
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
    except EnvironmentMistakes as mistakes:
        print(f"These settings are wrong:\n{mistakes}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
