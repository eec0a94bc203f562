"""``manage.py up``: everything kvadmin needs on one machine, by one command."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kvadmin.env import Environment, EnvironmentMistakes, fill_secrets, read_environment
from kvadmin.up import leftovers, places, preflight, status
from kvadmin.up.folders import private_folder
from kvadmin.up.problems import CannotRun
from kvadmin.up.supervisor import Stop, Supervisor

REFUSED = 1


def say(text: str) -> None:
    print(text, flush=True)


def lock(home: Path) -> int:
    """The lock of this home, held by the descriptor returned. CannotRun when another holds it."""
    descriptor = os.open(home / "run" / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        found = status.read(home)
        if found is None or not found.alive:
            raise CannotRun(f"kvadmin is already starting with {home}. Wait for it, or stop it.") from None
        raise CannotRun(
            f"kvadmin already runs here, as process {found.pid}: console {found.console_url}, gateway "
            f"{found.gateway_url}. To start it anew, stop that first: kill {found.pid}"
        ) from None
    return descriptor


def end_leftovers(home: Path) -> None:
    previous = status.read(home)
    if previous is None:
        return
    found = leftovers.find(previous)
    if found:
        say(f"An earlier kvadmin was killed and left {', '.join(found)} running: ending that")
        leftovers.end(found)


def announce(env: Environment, password: str, began: float) -> None:
    say("")
    say(f"kvadmin is ready after {time.monotonic() - began:.1f} s.")
    say(f"  Console  {env.console_url}/")
    say(f"  Gateway  {env.gateway_url}/v1")
    if password:
        say(f"  Sign in as admin with the password {password}")
        say("  It is shown only now and has to be changed at the first sign-in.")
    say(f"  Logs     {env.home / 'log'}")
    if env.exposed:
        say(
            "  Warning: kvadmin listens beyond this machine without encryption. Set KVADMIN_TLS_CERT and "
            "KVADMIN_TLS_KEY, or put a proxy with TLS in front and name it in KVADMIN_TRUSTED_PROXIES."
        )
    say("Ctrl-C stops it. Engines on hosts go on running.")


def supervise(env: Environment, on_ready: Callable[[Supervisor], None] | None = None) -> None:
    """Start, watch and stop. Returns after a stop that was asked for; raises CannotRun otherwise.

    ``on_ready`` is called once, in the watching thread, when console and gateway answer.
    """
    began = time.monotonic()
    preflight.writable_home(env.home)
    private_folder(env.home / "run")
    held = lock(env.home)
    supervisor = Supervisor(env, say)
    supervisor.catch_signals()
    try:
        end_leftovers(env.home)
        preflight.enough_disk(env.home)
        if not env.database_url:
            base = places.postgres_place(env.home).base
            preflight.enough_disk(next(folder for folder in [base, *base.parents] if folder.exists()))
        preflight.ports(env)
        fill_secrets(env)
        say(f"kvadmin starts with {env.home}")
        supervisor.start_servers()
        password = supervisor.prepare()
        supervisor.start_applications()

        def ready() -> None:
            announce(env, password, began)
            if on_ready:
                on_ready(supervisor)

        supervisor.watch(ready)
    except Stop:
        say("Stopping")
    finally:
        supervisor.stop()
        os.close(held)


def main(arguments: list[str] | None = None, on_ready: Callable[[Supervisor], None] | None = None) -> int:
    """The exit status: 0 after a stop that was asked for, 1 with a sentence otherwise."""
    try:
        env = read_environment()
        # relative to where `up` was called, which is not where its processes run
        os.environ["KVADMIN_HOME"] = str(env.home)
        supervise(env, on_ready)
    except EnvironmentMistakes as mistakes:
        print(f"kvadmin cannot start; these settings are wrong:\n{mistakes}", file=sys.stderr)
        return REFUSED
    except CannotRun as refused:
        print(f"kvadmin cannot start: {refused}", file=sys.stderr)
        return REFUSED
    say("Stopped.")
    return 0
