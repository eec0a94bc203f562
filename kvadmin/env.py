"""The environment kvadmin runs in, read and checked once, every mistake reported together.

Each name may also be given as NAME_FILE, the path of a file that holds the value. Secrets that are
not given are generated under ``KVADMIN_HOME`` (mode 0600) at the first start.
"""

from __future__ import annotations

import os
import secrets
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

BASE_DIR = Path(__file__).resolve().parent.parent


class EnvironmentMistakes(Exception):
    """One or more settings are wrong; the text lists all of them."""


class Environment(BaseSettings):
    model_config = SettingsConfigDict(extra="ignore", case_sensitive=True)

    home: Path = Field(BASE_DIR / "var", validation_alias="KVADMIN_HOME")
    port: int = Field(8080, validation_alias="KVADMIN_PORT", ge=1, le=65535)
    gateway_port: int = Field(8081, validation_alias="KVADMIN_GATEWAY_PORT", ge=1, le=65535)
    bind: str = Field("127.0.0.1", validation_alias="KVADMIN_BIND")
    allowed_hosts: str = Field("", validation_alias="KVADMIN_ALLOWED_HOSTS")
    trusted_proxies: str = Field("", validation_alias="KVADMIN_TRUSTED_PROXIES")
    tls_cert: str = Field("", validation_alias="KVADMIN_TLS_CERT")
    tls_key: str = Field("", validation_alias="KVADMIN_TLS_KEY")
    database_url: str = Field("", validation_alias="DATABASE_URL")
    valkey_url: str = Field("", validation_alias="VALKEY_URL")
    debug: bool = Field(False, validation_alias="KVADMIN_DEBUG")
    admin_password: str = Field("", validation_alias="KVADMIN_ADMIN_PASSWORD")
    secret_key: str = Field("", validation_alias="KVADMIN_SECRET_KEY")
    data_keys: str = Field("", validation_alias="KVADMIN_DATA_KEYS")
    pepper: str = Field("", validation_alias="KVADMIN_PEPPER")
    poll_seconds: float = Field(5, validation_alias="KVADMIN_POLL_SECONDS", gt=0)
    poll_seconds_many: float = Field(15, validation_alias="KVADMIN_POLL_SECONDS_MANY", gt=0)
    torch_index: str = Field("", validation_alias="KVADMIN_TORCH_INDEX")

    @property
    def tls(self) -> bool:
        return bool(self.tls_cert)


def _with_files(environ: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """The environment with every NAME_FILE read into NAME; and what went wrong."""
    values, mistakes = dict(environ), []
    names = {field.validation_alias for field in Environment.model_fields.values()}
    for name in names:
        path = environ.get(f"{name}_FILE")
        if not path:
            continue
        if environ.get(name):
            mistakes.append(f"{name} and {name}_FILE are both set: keep one.")
            continue
        try:
            values[str(name)] = Path(path).read_text().strip()
        except OSError as error:
            mistakes.append(f"{name}_FILE: cannot read {path}: {error.strerror}.")
    return values, mistakes


def read_environment(environ: dict[str, str] | None = None) -> Environment:
    """Read and check; raises EnvironmentMistakes with every mistake in words."""
    values, mistakes = _with_files(dict(os.environ if environ is None else environ))
    known = {
        str(field.validation_alias): values[str(field.validation_alias)]
        for field in Environment.model_fields.values()
        if values.get(str(field.validation_alias), "") != ""
    }
    result: Environment | None = None
    try:
        result = Environment.model_validate(known)
    except ValidationError as error:
        mistakes += [f"{item['loc'][0]}: {item['msg']}." for item in error.errors()]
    if mistakes or result is None:
        raise EnvironmentMistakes("\n".join(mistakes))
    result.home = result.home.expanduser().resolve()
    return result


def generated(home: Path, name: str, make: Any) -> str:
    """A secret kept in ``home/secrets/name`` (0600), made at first use."""
    folder = home / "secrets"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    path = folder / name
    if not path.exists():
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return path.read_text().strip()
        with os.fdopen(handle, "w") as file:
            file.write(make())
    return path.read_text().strip()


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
