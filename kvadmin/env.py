"""The environment kvadmin runs in, read and checked once, every mistake reported together.

A secret may also be given as NAME_FILE, the path of a file that holds it. Secrets that are not given
are generated under ``KVADMIN_HOME`` (mode 0600) at the first start.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from cryptography.fernet import Fernet
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from kvadmin import serviceurls
from kvadmin.forwarded import Network, is_trusted, parse_address, parse_networks

BASE_DIR = Path(__file__).resolve().parent.parent
#: names that kvadmin gives the processes it starts, and those of tests and benchmarks
OWN_PREFIXES = ("KVADMIN_UP_", "KVADMIN_TEST_", "KVADMIN_BENCH_", "KVADMIN_START", "KVADMIN_JOB")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class EnvironmentMistakes(Exception):
    """One or more settings are wrong; the text lists all of them, one a line, without any secret."""


def setting(default: Any, name: str, write: str, *, secret: bool = False, **limits: Any) -> Any:
    """A field: its default, its name in the environment, and what to write there."""
    return Field(
        default, validation_alias=name, json_schema_extra={"write": write, "secret": secret}, **limits
    )


class Environment(BaseSettings):
    model_config = SettingsConfigDict(extra="ignore", case_sensitive=True, validate_default=False)

    home: Path = setting(BASE_DIR / "var", "KVADMIN_HOME", "a folder that kvadmin may write to")
    port: int = setting(8080, "KVADMIN_PORT", "a port between 1 and 65535, such as 8080", ge=1, le=65535)
    gateway_port: int = setting(
        8081, "KVADMIN_GATEWAY_PORT", "a port between 1 and 65535, such as 8081", ge=1, le=65535
    )
    gateway_address: str = setting(
        "", "KVADMIN_GATEWAY_URL", "the gateway's address for callers, such as https://llm.example.org"
    )
    gateway_workers: int = setting(
        1, "KVADMIN_GATEWAY_WORKERS", "a number of processes between 1 and 64", ge=1, le=64
    )
    stale_max: int = setting(
        900, "KVADMIN_STALE_MAX", "a number of seconds between 1 and 86400", ge=1, le=86400
    )
    bind: str = setting(
        "127.0.0.1", "KVADMIN_BIND", "an address of this machine, such as 127.0.0.1 or 0.0.0.0"
    )
    allowed_hosts: str = setting(
        "", "KVADMIN_ALLOWED_HOSTS", "host names with commas between, such as kvadmin.example.org"
    )
    trusted_proxies: str = setting(
        "", "KVADMIN_TRUSTED_PROXIES", "networks with commas between, such as 10.0.0.0/8"
    )
    tls_cert: str = setting("", "KVADMIN_TLS_CERT", "the path of a PEM file")
    tls_key: str = setting("", "KVADMIN_TLS_KEY", "the path of a PEM file")
    database_url: str = setting(
        "", "DATABASE_URL", "postgresql://user:password@host:5432/database", secret=True
    )
    valkey_url: str = setting("", "VALKEY_URL", "redis://:password@host:6379/0", secret=True)
    debug: bool = setting(False, "KVADMIN_DEBUG", "1 or 0")
    log_level: str = setting("INFO", "KVADMIN_LOG_LEVEL", f"one of {', '.join(LOG_LEVELS)}")
    admin_password: str = setting(
        "", "KVADMIN_ADMIN_PASSWORD", "the first administrator's password", secret=True
    )
    secret_key: str = setting(
        "", "KVADMIN_SECRET_KEY", "at least 32 random characters", secret=True, min_length=32
    )
    data_keys: str = setting(
        "", "KVADMIN_DATA_KEYS", "Fernet keys with commas between, the newest first", secret=True
    )
    pepper: str = setting("", "KVADMIN_PEPPER", "at least 16 random characters", secret=True, min_length=16)
    poll_seconds: float = setting(
        5, "KVADMIN_POLL_SECONDS", "a number of seconds between 1 and 3600", ge=1, le=3600
    )
    poll_seconds_many: float = setting(
        15, "KVADMIN_POLL_SECONDS_MANY", "a number of seconds between 1 and 3600", ge=1, le=3600
    )
    keep_raw_h: int = setting(48, "KVADMIN_KEEP_RAW_H", "a number of hours, 2 or more", ge=2, le=8784)
    keep_minutes_d: int = setting(
        30, "KVADMIN_KEEP_MINUTES_D", "a number of days between 1 and 400", ge=1, le=400
    )
    keep_hours_d: int = setting(
        400, "KVADMIN_KEEP_HOURS_D", "a number of days between 31 and 4000", ge=31, le=4000
    )
    keep_usage_d: int = setting(
        30, "KVADMIN_KEEP_USAGE_D", "a number of days between 2 and 400", ge=2, le=400
    )
    keep_usage_gb: int = setting(
        20, "KVADMIN_KEEP_USAGE_GB", "a number of gigabytes between 1 and 100000", ge=1, le=100_000
    )
    spool_mb: int = setting(
        1024, "KVADMIN_SPOOL_MB", "a number of megabytes between 16 and 1000000", ge=16, le=1_000_000
    )
    keep_audit_d: int = setting(
        400, "KVADMIN_KEEP_AUDIT_D", "a number of days between 30 and 4000", ge=30, le=4000
    )
    keep_operations_d: int = setting(
        90, "KVADMIN_KEEP_OPERATIONS_D", "a number of days between 7 and 4000", ge=7, le=4000
    )
    keep_starts: int = setting(
        20, "KVADMIN_KEEP_STARTS", "a number of starts between 2 and 1000", ge=2, le=1000
    )
    torch_index: str = setting(
        "", "KVADMIN_TORCH_INDEX", "the address of an index with PyTorch's CPU wheels, or their folder"
    )
    oidc_name: str = setting("Single sign-on", "KVADMIN_OIDC_NAME", "what the sign-in button says")
    oidc_server_url: str = setting(
        "", "KVADMIN_OIDC_SERVER_URL", "the provider's address, such as https://login.example.org/realms/main"
    )
    oidc_client_id: str = setting("", "KVADMIN_OIDC_CLIENT_ID", "the client id the provider gave out")
    oidc_client_secret: str = setting(
        "", "KVADMIN_OIDC_CLIENT_SECRET", "the client secret the provider gave out", secret=True
    )
    oidc_create_users: bool = setting(False, "KVADMIN_OIDC_CREATE_USERS", "1 or 0")
    oidc_role: Literal["administrator", "operator", "viewer", "member"] = setting(
        "viewer", "KVADMIN_OIDC_ROLE", "administrator, operator, viewer or member"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        **others: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # read_environment gives every value, so that a test can give another environment
        return (init_settings,)

    @field_validator("bind")
    @classmethod
    def _bind(cls, value: str) -> str:
        if value == "localhost":
            return "127.0.0.1"
        try:
            return str(ip_address(value.strip("[]")))
        except ValueError:
            raise ValueError("is no IP address") from None

    @field_validator("allowed_hosts")
    @classmethod
    def _allowed_hosts(cls, value: str) -> str:
        for name in filter(None, (name.strip() for name in value.split(","))):
            if "/" in name or (":" in name and not name.startswith("[")):
                raise ValueError(f"has {name!r}, which is more than a host name: leave scheme and port out")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _trusted_proxies(cls, value: str) -> str:
        try:
            parse_networks(value)
        except ValueError as error:
            raise ValueError(f"cannot be read: {error}") from None
        return value

    @field_validator("tls_cert", "tls_key")
    @classmethod
    def _tls_file(cls, value: str) -> str:
        path = Path(value).expanduser()
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ValueError(f"cannot be opened ({error.strerror})") from None
        if b"-----BEGIN" not in text:
            raise ValueError("is not in PEM form")
        if any(kind in text for kind in (b"RSA PRIVATE KEY", b"EC PRIVATE KEY", b"ENCRYPTED PRIVATE KEY")):
            raise ValueError(
                "holds a key that is not plain PKCS#8 (make one with "
                "`openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW`)"
            )
        return str(path.resolve())

    @field_validator("database_url")
    @classmethod
    def _database_url(cls, value: str) -> str:
        try:
            serviceurls.database_settings(value)
        except ValueError as error:
            raise ValueError(f"cannot be used: {error}") from None
        return value

    @field_validator("valkey_url")
    @classmethod
    def _valkey_url(cls, value: str) -> str:
        try:
            return serviceurls.broker_url(value)
        except ValueError as error:
            raise ValueError(f"cannot be used: {error}") from None

    @field_validator("log_level")
    @classmethod
    def _log_level(cls, value: str) -> str:
        if value.upper() not in LOG_LEVELS:
            raise ValueError("is no level")
        return value.upper()

    @field_validator("data_keys")
    @classmethod
    def _data_keys(cls, value: str) -> str:
        for place, key in enumerate(filter(None, (key.strip() for key in value.split(","))), 1):
            try:
                Fernet(key)
            except ValueError:
                raise ValueError(f"has a key (number {place}) that is no Fernet key") from None
        return value

    @field_validator("torch_index", "oidc_server_url", "gateway_address")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = urlsplit(value)
        if value.startswith("/") or (
            parts.scheme in {"http", "https", "file"} and (parts.netloc or parts.path)
        ):
            return value
        raise ValueError("is no address that begins with http:// or https://")

    @property
    def tls(self) -> bool:
        return bool(self.tls_cert)

    @property
    def proxies(self) -> list[Network]:
        return parse_networks(self.trusted_proxies)

    @property
    def loopback(self) -> bool:
        address = parse_address(self.bind)
        return is_trusted(address, parse_networks("127.0.0.0/8, ::1/128"))

    @property
    def exposed(self) -> bool:
        """Whether passwords and keys can pass over a network unencrypted."""
        return not self.loopback and not self.tls and not self.proxies

    @property
    def oidc(self) -> bool:
        return bool(self.oidc_server_url)

    @property
    def console_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{_shown(self.bind)}:{self.port}"

    @property
    def gateway_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{_shown(self.bind)}:{self.gateway_port}"


def _shown(bind: str) -> str:
    """The address to open in a browser on this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(bind, f"[{bind}]" if ":" in bind else bind)  # noqa: S104


FIELDS = {str(field.validation_alias): field for field in Environment.model_fields.values()}
SECRET_NAMES = [name for name, field in FIELDS.items() if field.json_schema_extra["secret"]]
KNOWN_NAMES = {*FIELDS, *(f"{name}_FILE" for name in SECRET_NAMES)}


def _with_files(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The known names' values with every NAME_FILE read into NAME; and what went wrong."""
    values = {name: environ[name] for name in FIELDS if environ.get(name, "") != ""}
    mistakes = []
    for name in SECRET_NAMES:
        path = environ.get(f"{name}_FILE")
        if not path:
            continue
        if name in values:
            mistakes.append(f"{name} and {name}_FILE are both set. Keep one of them.")
            continue
        try:
            values[name] = Path(path).expanduser().read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            mistakes.append(f"{name}_FILE: {path!r} cannot be read ({reason}). Write the path of a file.")
            continue
        if not values[name]:
            mistakes.append(f"{name}_FILE: {path!r} is empty. Write {_write(name)} into it.")
            del values[name]
    return values, mistakes


def _write(name: str) -> str:
    return FIELDS[name].json_schema_extra["write"]


def _unknown(environ: Mapping[str, str]) -> list[str]:
    mistakes = []
    for name in sorted(environ):
        if not name.startswith("KVADMIN_") or name in KNOWN_NAMES or name.startswith(OWN_PREFIXES):
            continue
        plain = name.removesuffix("_FILE")
        near = [plain] if plain in FIELDS else get_close_matches(name, sorted(KNOWN_NAMES), 1, 0.75)
        hint = f"Did you mean {near[0]}?" if near else "Remove it; docs/operations.md lists the settings."
        mistakes.append(f"{name} is no setting of kvadmin. {hint}")
    return mistakes


def _conflicts(values: Mapping[str, str]) -> list[str]:
    """Settings that are right alone and wrong together."""
    mistakes = []
    names = ("KVADMIN_PORT", "KVADMIN_GATEWAY_PORT")
    port, gateway_port = (values.get(name, str(FIELDS[name].default)).strip() for name in names)
    if port == gateway_port:
        mistakes.append(
            f"KVADMIN_PORT and KVADMIN_GATEWAY_PORT are both {port}. Console and gateway each need their "
            "own: write another number for one of them."
        )
    for one, other in (("KVADMIN_TLS_CERT", "KVADMIN_TLS_KEY"), ("KVADMIN_TLS_KEY", "KVADMIN_TLS_CERT")):
        if one in values and other not in values:
            mistakes.append(f"{one} is set and {other} is not. Write {other} too, or neither.")
    wanted = ("KVADMIN_OIDC_SERVER_URL", "KVADMIN_OIDC_CLIENT_ID", "KVADMIN_OIDC_CLIENT_SECRET")
    missing = [name for name in wanted if name not in values]
    if missing and len(missing) < len(wanted):
        given = [name for name in wanted if name in values]
        verb = "is" if len(given) == 1 else "are"
        mistakes.append(
            f"{' and '.join(given)} {verb} set without {' and '.join(missing)}. "
            "Sign-in through a provider needs all three."
        )
    return mistakes


def _sentence(name: str, item: Mapping[str, Any]) -> str:
    """One pydantic error in words. A secret's value is not repeated."""
    value = "the value" if FIELDS[name].json_schema_extra["secret"] else repr(item["input"])
    context = item.get("ctx", {})
    reasons = {
        "int_parsing": "is not a whole number",
        "int_from_float": "is not a whole number",
        "float_parsing": "is not a number",
        "bool_parsing": "is neither yes nor no",
        "greater_than_equal": f"is less than {context.get('ge')}",
        "less_than_equal": f"is more than {context.get('le')}",
        "string_too_short": f"is shorter than {context.get('min_length')} characters",
        "value_error": str(context.get("error", "")),
    }
    return f"{name}: {value} {reasons.get(item['type'], 'cannot be used')}. Write {_write(name)}."


def read_environment(environ: Mapping[str, str] | None = None) -> Environment:
    """Read and check; raises EnvironmentMistakes with every mistake in words."""
    environ = os.environ if environ is None else environ
    values, mistakes = _with_files(environ)
    result: Environment | None = None
    try:
        result = Environment(**values)
    except ValidationError as error:
        mistakes += [_sentence(str(item["loc"][0]), item) for item in error.errors()]
    mistakes += _conflicts(values) + _unknown(environ)
    if mistakes or result is None:
        raise EnvironmentMistakes("\n".join(mistakes))
    result.home = result.home.expanduser().resolve()
    return result


def generated(home: Path, name: str, make: Callable[[], str]) -> str:
    """A secret kept in ``home/secrets/name`` (0600), made at first use."""
    folder = home / "secrets"
    path = folder / name
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # whole or not there at all, whoever else makes it at this moment
            part = folder / f".{name}.{os.getpid()}"
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(make())
            try:
                os.link(part, path)
            except FileExistsError:
                pass
            finally:
                part.unlink()
        value = path.read_text().strip()
    except OSError as error:
        raise EnvironmentMistakes(
            f"KVADMIN_HOME: the secret {path} can be neither read nor made ({error.strerror}). "
            "Start kvadmin as the user who owns that folder, or write a folder that kvadmin may write to."
        ) from error
    if not value:
        raise EnvironmentMistakes(
            f"KVADMIN_HOME: the secret {path} is empty. Put it back from a backup; or remove it to have a "
            "new one made, which makes what was stored with the old one unreadable."
        )
    return value


def fill_secrets(env: Environment) -> Environment:
    """Generate whatever secret was not given."""
    env.secret_key = env.secret_key or generated(env.home, "secret_key", lambda: secrets.token_urlsafe(50))
    env.data_keys = env.data_keys or generated(env.home, "data_key", lambda: Fernet.generate_key().decode())
    env.pepper = env.pepper or generated(env.home, "pepper", lambda: secrets.token_urlsafe(32))
    return env


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The process's environment; secrets filled in."""
    return fill_secrets(read_environment())
