"""Logs in JSON, one object a line, with no secret in them.

Whatever is logged, by kvadmin or by a library, passes through ``Redacted`` last: values that are known
secrets, and what looks like one, are replaced in the finished line.
"""

from __future__ import annotations

import logging
import logging.config
import re
from collections.abc import Iterable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any

import structlog

from kvadmin.env import Environment

MASK = "[secret]"
QUIET = (
    "paramiko",
    "httpx",
    "httpcore",
    "asyncio",
    "celery.worker.strategy",
    "celery.app.trace",
    "celery.beat",
)
#: names of fields whose value is never written
SECRET_FIELD = re.compile(
    r"(?i)(^|_)(password|passphrase|secret|token|api_?key|private_?key|authorization|cookie|pepper|data_?keys?)$"
)
PATTERNS = (
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{8,}"),
    re.compile(r"sk-[\w-]{12,}"),
    re.compile(r"(?<=://)[^/@\s\"]*:[^/@\s\"]+(?=@)"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL),
    re.compile(r"(?i)(?<=password=)[^\s&\"']+"),
    re.compile(r"(?<=VLLM_API_KEY=)\S+"),
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    for pattern in PATTERNS:
        text = pattern.sub(MASK, text)
    return text


def mask_fields(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: fields called like a secret lose their value."""
    for name in event:
        if SECRET_FIELD.search(name):
            event[name] = MASK
    return event


@lru_cache(maxsize=1)
def _known_secrets() -> tuple[str, ...]:
    from kvadmin.env import environment
    from kvadmin.services import valkey_password

    env = environment()
    values = [env.secret_key, env.pepper, *env.data_keys.split(","), env.oidc_client_secret]
    values += [env.admin_password, env.database_url, env.valkey_url]
    if not env.valkey_url:
        values.append(valkey_password(env))
    # a short value would blank out ordinary words
    return tuple(sorted({value for value in values if len(value) >= 8}, key=len, reverse=True))


class Redacted(structlog.stdlib.ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record), _known_secrets())


def _shared() -> list[Any]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        mask_fields,
    ]


def logging_settings(env: Environment) -> dict[str, Any]:
    """A dictConfig: everything to standard error, which the supervisor writes to var/log."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {
                "()": "kvadmin.logs.Redacted",
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.JSONRenderer(ensure_ascii=False),
                ],
                "foreign_pre_chain": _shared(),
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["stderr"], "level": env.log_level},
        "loggers": {
            # what these say at INFO, operations record already, or it is said of every task
            **{name: {"level": "WARNING"} for name in QUIET},
            "django.server": {"handlers": [], "propagate": True},
            "django": {"handlers": [], "propagate": True, "level": env.log_level},
        },
    }


def configure(config: Mapping[str, Any]) -> None:
    """Django's LOGGING_CONFIG: the standard library and structlog through the same processors."""
    logging.config.dictConfig(dict(config))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
