"""Everything `manage.py up` does, then the main job on a real vLLM that needs no GPU."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Any

import httpx
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.utils.translation import gettext as _

from kvadmin.actions import ActionError, Actor
from kvadmin.demo.journey import NAME, DemoStopped, Journey
from kvadmin.demo.traffic import Tally, stream
from kvadmin.env import BASE_DIR

#: how long the services may take before the demo gives up, seconds
UP_LIMIT_S = 300


class Command(BaseCommand):
    help = "Start kvadmin, provision a vLLM for CPUs, serve a small model and send it requests."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        self.asked_to_stop = False
        up = self._start_services()
        before = {one: signal.signal(one, self._ask_to_stop) for one in (signal.SIGINT, signal.SIGTERM)}
        journey = Journey(say=self._say, stop=lambda: self.asked_to_stop, actor=Actor(source="command"))
        failed: str | None = None
        try:
            self._wait_for_console(up)
            engine = journey.run()
            self._announce(engine.get_absolute_url())
            self._send_requests(engine)
        except (DemoStopped, ActionError) as error:
            fields = getattr(error, "errors", {})
            more = [f"{name}: {' '.join(sentences)}" for name, sentences in fields.items()]
            failed = " ".join([str(error), getattr(error, "remedy", ""), *more]).strip()
            self._say(failed)
        except KeyboardInterrupt:
            self.asked_to_stop = True
        finally:
            self._end(journey, up)
            for one, handler in before.items():
                signal.signal(one, handler)
        if failed:
            raise CommandError(_("The demo did not get to its end."))

    def _ask_to_stop(self, *_args: object) -> None:
        if self.asked_to_stop:
            self._say(_("Stopping already; a moment."))
        self.asked_to_stop = True

    def _say(self, text: str) -> None:
        self.stdout.write(f"{time.strftime('%H:%M:%S')}  {text}")
        self.stdout.flush()

    def _start_services(self) -> subprocess.Popen[bytes] | None:
        """kvadmin's own processes, in a process group of their own so that Ctrl-C reaches only this one."""
        if self._console_answers():
            self._say(_("kvadmin is running already: the demo uses it."))
            return None
        command = [sys.executable, str(BASE_DIR / "manage.py"), "up"]
        return subprocess.Popen(command, cwd=BASE_DIR, start_new_session=True, env=os.environ.copy())  # noqa: S603

    @property
    def _console(self) -> str:
        scheme = "https" if settings.ENV.tls else "http"
        host = settings.ENV.bind if settings.ENV.bind not in {"0.0.0.0", "::"} else "127.0.0.1"  # noqa: S104
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.ENV.port}"

    def _console_answers(self) -> bool:
        try:
            answer = httpx.get(f"{self._console}/readyz", timeout=3, verify=False, trust_env=False)  # noqa: S501
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    def _wait_for_console(self, up: subprocess.Popen[bytes] | None) -> None:
        until = time.monotonic() + UP_LIMIT_S
        while not self._console_answers():
            if up is not None and up.poll() is not None:
                raise DemoStopped(_("kvadmin did not start: what is wrong stands above."))
            if time.monotonic() > until:
                raise DemoStopped(_("kvadmin does not answer at %(url)s.") % {"url": self._console})
            if self.asked_to_stop:
                raise KeyboardInterrupt
            time.sleep(0.5)

    def _announce(self, path: str) -> None:
        self.stdout.write("")
        self._say(_("Ready. The live chart: %(url)s") % {"url": f"{self._console}{path}"})
        self._say(_("Requests are being sent. Ctrl-C stops everything, the engine too."))
        self.stdout.write("")

    def _send_requests(self, engine: Any) -> None:
        tally = Tally()

        def report(now: Tally) -> None:
            line = _("%(done)d requests answered, %(failed)d failed, %(tokens)d tokens.")
            self._say(line % {"done": now.done, "failed": now.failed, "tokens": now.tokens})

        connection.close()
        asyncio.run(
            stream(
                engine.base_url,
                NAME,
                engine.api_key,
                stop=lambda: self.asked_to_stop,
                tally=tally,
                report=report,
            )
        )

    def _end(self, journey: Journey, up: subprocess.Popen[bytes] | None) -> None:
        try:
            journey.end()
        except Exception as error:  # noqa: BLE001  (whatever it is, kvadmin's processes have to be ended)
            self._say(_("The engine could not be stopped: %(error)s") % {"error": error})
        connection.close()
        if up is None:
            return
        if up.poll() is None:
            up.send_signal(signal.SIGTERM)
        try:
            up.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._say(_("kvadmin's processes are slow to end; leaving them to it."))
