"""This machine as a host: the same scripts and the same behaviour, without SSH."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path

from engines.ssh.command import BOOTSTRAP_ARGV
from engines.ssh.errors import CommandTimeout, HostUnreachable
from engines.ssh.shell import Exchange, ShellSession
from kvadmin.sentences import gettext as _

_CHUNK = 65536

# As over SSH, a script starts from a login's environment: nothing of kvadmin's own (its keys, its
# database, its virtual environment) reaches an engine.
_PASSED_ON = {
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "TMPDIR", "TZ", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "LD_LIBRARY_PATH", "CUDA_HOME", "HF_HOME",
}  # fmt: skip
_PASSED_ON_PREFIXES = ("PIP_", "UV_")


def login_environment() -> dict[str, str]:
    """What a script on this machine gets as its environment."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    passed.setdefault("HOME", str(Path.home()))
    return passed


class LocalLine:
    """A child process with a session, so a process group, of its own for each run."""

    def carry(self, exchange: Exchange) -> None:
        environment = login_environment()
        try:
            process = subprocess.Popen(  # noqa: S603
                BOOTSTRAP_ARGV,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise HostUnreachable(
                _("No process can be started on this machine: %(error)s") % {"error": error.strerror},
                remedy=_("Free some memory or raise the limit on processes, then try again."),
            ) from error
        try:
            self._talk(process, exchange)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise CommandTimeout(
                _("A command on this machine did not finish within %(limit)d s and was ended.")
                % {"limit": exchange.timeout_s},
                remedy=_("The machine may be overloaded, or a disk or a GPU driver may hang."),
            ) from None
        finally:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            # ended or about to: after its end mark the shell only puts its watchdog away
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self) -> None:
        """Nothing is kept open."""

    def _talk(self, process: subprocess.Popen[bytes], exchange: Exchange) -> None:
        until = time.monotonic() + exchange.timeout_s
        rest = memoryview(exchange.payload)
        frames = {process.stdout: exchange.stdout, process.stderr: exchange.stderr}
        with selectors.DefaultSelector() as selector:
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert pipe is not None  # noqa: S101
                os.set_blocking(pipe.fileno(), False)
                selector.register(
                    pipe, selectors.EVENT_WRITE if pipe is process.stdin else selectors.EVENT_READ
                )
            while not exchange.ended and len(selector.get_map()):
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                for key, _mask in selector.select(left):
                    if key.fileobj is process.stdin:
                        rest = self._send(process, rest)
                        if not rest:
                            selector.unregister(process.stdin)
                            with contextlib.suppress(OSError):
                                process.stdin.close()
                        continue
                    data = os.read(key.fd, _CHUNK)
                    if data:
                        frames[key.fileobj].feed(data)
                    else:
                        selector.unregister(key.fileobj)

    @staticmethod
    def _send(process: subprocess.Popen[bytes], rest: memoryview) -> memoryview:
        try:
            return rest[os.write(process.stdin.fileno(), rest[:_CHUNK]) :]  # type: ignore[union-attr]
        except BlockingIOError:
            return rest
        except BrokenPipeError:
            return rest[:0]


def local_session() -> ShellSession:
    return ShellSession(LocalLine(), _("this machine"))
