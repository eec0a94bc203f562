"""A Valkey of one test's own, to be killed, stopped and started again."""

from __future__ import annotations

import secrets
import signal
import subprocess
from pathlib import Path

from kvadmin.services import socket_url
from kvadmin.up import proc
from kvadmin.up import valkey as server
from kvadmin.up.places import valkey_socket


class OwnValkey:
    def __init__(self, home: Path):
        self.path, self.password = valkey_socket(home), secrets.token_urlsafe(8)
        self.url = socket_url(str(self.path), self.password)
        server.prepare(self.path)
        self.start()

    def start(self) -> None:
        """It comes back empty."""
        self.process = subprocess.Popen(server.command(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert self.process.stdin
        self.process.stdin.write(server.configuration(self.path, self.password).encode())
        self.process.stdin.close()
        assert proc.wait_until(lambda: server.answers(self.path, self.password), 30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """It says nothing more until ``thaw``, and its connections stay."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)
