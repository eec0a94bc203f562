"""Which processes `up` runs, and how each is started, asked and stopped. Pure."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvadmin.env import BASE_DIR, Environment

#: SSH operations wait for hosts most of the time, so threads are enough; each may hold a connection
OPS_THREADS = 8
POLL_THREADS = 3
#: names in the environment that only the first preparation needs
FOR_PREPARATION_ONLY = ("KVADMIN_ADMIN_PASSWORD", "KVADMIN_ADMIN_PASSWORD_FILE")
#: how a process of `up` is told apart from any other
RUN_MARKER = "KVADMIN_UP_RUN"
NAME_MARKER = "KVADMIN_UP_NAME"


@dataclass(frozen=True)
class ProcessSpec:
    """``stop`` is the signal that asks it to end, ``patience_s`` how long it may take."""

    name: str
    command: list[str]
    stop: int = signal.SIGTERM
    patience_s: float = 10.0
    #: further arguments of Popen: the user to run as, another environment
    popen: dict[str, Any] = field(default_factory=dict)
    #: what it reads on its standard input
    stdin: bytes = b""
    #: the address whose 200 means ready
    ready_url: str = ""


def manage(*words: str) -> list[str]:
    return [sys.executable, str(BASE_DIR / "manage.py"), *words]


def console(env: Environment) -> ProcessSpec:
    words = [sys.executable, "-m", "granian", "kvadmin.asgi:application", "--interface", "asgi"]
    words += ["--host", env.bind, "--port", str(env.port), "--workers", "1", "--loop", "uvloop", "--no-ws"]
    words += ["--runtime-mode", "st", "--log-config", str(granian_log_file(env.home))]
    if env.tls:
        words += ["--ssl-certificate", env.tls_cert, "--ssl-keyfile", env.tls_key]
        words += ["--ssl-protocol-min", "tls1.2"]
    return ProcessSpec("console", words, ready_url=f"{env.console_url}/readyz")


def granian_log_file(home: Path) -> Path:
    return home / "run" / "granian-log.json"


def granian_logging() -> dict[str, object]:
    """Granian's own few lines as JSON too. It knows no Django, so nothing of ours is in them."""
    line = (
        '{"event": "%(message)s", "level": "%(levelname)s", "logger": "%(name)s", "timestamp": "%(asctime)s"}'
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "root": {"level": "INFO", "handlers": ["console"]},
        "formatters": {"json": {"()": "logging.Formatter", "fmt": line}},
        "handlers": {
            "console": {
                "formatter": "json",
                "class": "logging.StreamHandler",
                "stream": "ext://sys.stderr",
            }
        },
        "loggers": {"_granian": {"handlers": ["console"], "level": "INFO", "propagate": False}},
    }


def gateway(env: Environment) -> ProcessSpec:
    return ProcessSpec("gateway", manage("gateway"), patience_s=15, ready_url=f"{env.gateway_url}/readyz")


def _celery(name: str, *words: str, patience_s: float = 10.0) -> ProcessSpec:
    return ProcessSpec(
        name, [sys.executable, "-m", "celery", "-A", "kvadmin.celery", *words], patience_s=patience_s
    )


def workers() -> list[ProcessSpec]:
    """Two processes: a host that hangs can fill every thread of one, and delays no poll in the other."""
    common = ("--without-gossip", "--without-mingle", "--pool", "threads", "--prefetch-multiplier", "1")
    return [
        _celery("worker", "worker", "-n", "ops@%h", "-Q", "ops", "-c", str(OPS_THREADS), *common),
        _celery("poller", "worker", "-n", "poll@%h", "-Q", "poll,rollup", "-c", str(POLL_THREADS), *common),
    ]


def beat(env: Environment) -> ProcessSpec:
    schedule = env.home / "run" / "beat-schedule"
    return _celery("beat", "beat", "--schedule", str(schedule), "--pidfile=", patience_s=5)


def applications(env: Environment) -> list[ProcessSpec]:
    """kvadmin's own processes, in the order they start."""
    return [console(env), gateway(env), *workers(), beat(env)]
