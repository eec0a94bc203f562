"""The settings from the environment: every mistake at once, in words, without a secret."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet

from kvadmin.env import EnvironmentMistakes, generated, read_environment

PEM = "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n"


def mistakes(**environ: str) -> list[str]:
    with pytest.raises(EnvironmentMistakes) as caught:
        read_environment(environ)
    return str(caught.value).splitlines()


def test_it_needs_nothing_set():
    env = read_environment({"PATH": "/bin"})
    assert (env.port, env.gateway_port, env.bind, env.stale_max) == (8080, 8081, "127.0.0.1", 900)
    assert env.home.name == "var"
    assert not env.exposed


def test_it_tells_every_mistake_at_once():
    told = mistakes(
        KVADMIN_PORT="80x", KVADMIN_GATEWAY_PORT="99999", KVADMIN_DEBUG="maybe", KVADMIN_STALE_MAX="1.5"
    )
    assert told == [
        "KVADMIN_PORT: '80x' is not a whole number. Write a port between 1 and 65535, such as 8080.",
        "KVADMIN_GATEWAY_PORT: '99999' is more than 65535. Write a port between 1 and 65535, such as 8081.",
        "KVADMIN_STALE_MAX: '1.5' is not a whole number. Write a number of seconds between 1 and 86400.",
        "KVADMIN_DEBUG: 'maybe' is neither yes nor no. Write 1 or 0.",
    ]


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"KVADMIN_PORT": "9000", "KVADMIN_GATEWAY_PORT": "9000"}, "are both 9000"),
        ({"KVADMIN_PORT": "8081"}, "are both 8081"),
        ({"KVADMIN_PORT": "0"}, "is less than 1"),
        ({"KVADMIN_BIND": "everywhere"}, "'everywhere' is no IP address"),
        ({"KVADMIN_ALLOWED_HOSTS": "https://kv.example.org"}, "leave scheme and port out"),
        ({"KVADMIN_TRUSTED_PROXIES": "10.0.0.1/8"}, "10.0.0.0/8 is meant?"),
        ({"KVADMIN_TRUSTED_PROXIES": "proxy"}, "'proxy' is no network"),
        ({"KVADMIN_SECRET_KEY": "short"}, "shorter than 32 characters"),
        ({"KVADMIN_DATA_KEYS": f"{Fernet.generate_key().decode()},x"}, "number 2"),
        ({"KVADMIN_GATEWAY_WORKERS": "0"}, "is less than 1"),
        ({"KVADMIN_TORCH_INDEX": "wheels"}, "is no address that begins with http://"),
        ({"KVADMIN_OIDC_CLIENT_ID": "kv"}, "KVADMIN_OIDC_SERVER_URL and KVADMIN_OIDC_CLIENT_SECRET"),
        ({"DATABASE_URL": "mysql://u:p@h/x"}, "begins with mysql://"),
        ({"DATABASE_URL": "postgres://u:p@h:x/kv"}, "port in it cannot be read"),
        ({"DATABASE_URL": "postgres://u:p@h/"}, "one database name"),
        ({"DATABASE_URL": "postgres://u:p@h/kv?sslmod=require"}, "is sslmode meant?"),
        ({"DATABASE_URL": "postgres://u:p@h/kv?sslmode=on"}, "sslmode is none of disable"),
        ({"VALKEY_URL": "http://h"}, "begins with http://"),
        ({"VALKEY_URL": "redis:///0"}, "names no host"),
        ({"VALKEY_URL": "unix://"}, "names no socket"),
        ({"KVADMIN_LOG_LEVEL": "LOUD"}, "Write one of DEBUG"),
    ],
)
def test_it_refuses(environ, words):
    (told,) = mistakes(**environ)
    assert words in told


def test_it_never_repeats_a_secret():
    told = "\n".join(
        mistakes(
            DATABASE_URL="mysql://kv:hunter2222@h/x",
            VALKEY_URL="http://:hunter2222@h",
            KVADMIN_SECRET_KEY="hunter2222",
            KVADMIN_PEPPER="hunter2222",
            KVADMIN_DATA_KEYS="hunter2222",
        )
    )
    assert told.count("Write ") == 5
    assert "hunter" not in told


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("KVADMIN_PROT", "Did you mean KVADMIN_PORT?"),
        ("KVADMIN_GATEWAYPORT", "Did you mean KVADMIN_GATEWAY_PORT?"),
        ("KVADMIN_TRUSTED_PROXY", "Did you mean KVADMIN_TRUSTED_PROXIES?"),
        ("KVADMIN_PORT_FILE", "Did you mean KVADMIN_PORT?"),
        ("KVADMIN_ZZZ", "docs/operations.md lists the settings"),
    ],
)
def test_it_asks_what_an_unknown_name_means(name, meant):
    (told,) = mistakes(**{name: "1"})
    assert name in told
    assert meant in told


def test_it_leaves_names_of_its_own_processes_alone():
    own = {"KVADMIN_UP_RUN": "x", "KVADMIN_TEST_VLLM": "x", "HOME": "/root"}
    assert read_environment(own) == read_environment({})
    (told,) = mistakes(**own, KVADMIN_UPRUN="x")
    assert "KVADMIN_UPRUN" in told


def test_it_reads_a_secret_from_a_file(tmp_path):
    (tmp_path / "password").write_text("from a file\n")
    env = read_environment({"KVADMIN_ADMIN_PASSWORD_FILE": str(tmp_path / "password")})
    assert env.admin_password == "from a file"


def test_it_says_what_is_wrong_with_a_secrets_file(tmp_path):
    (tmp_path / "empty").write_text("\n")
    told = mistakes(
        KVADMIN_PEPPER_FILE=str(tmp_path / "none"),
        KVADMIN_SECRET_KEY_FILE=str(tmp_path / "empty"),
        DATABASE_URL="postgres://h/kv",
        DATABASE_URL_FILE=str(tmp_path / "empty"),
    )
    assert any("KVADMIN_PEPPER_FILE" in line and "No such file" in line for line in told)
    assert any("KVADMIN_SECRET_KEY_FILE" in line and "is empty" in line for line in told)
    assert "DATABASE_URL and DATABASE_URL_FILE are both set. Keep one of them." in told


def test_it_wants_certificate_and_key_together(tmp_path):
    (tmp_path / "cert.pem").write_text(PEM)
    told = mistakes(KVADMIN_TLS_CERT=str(tmp_path / "cert.pem"))
    assert told == [
        "KVADMIN_TLS_CERT is set and KVADMIN_TLS_KEY is not. Write KVADMIN_TLS_KEY too, or neither."
    ]


def test_it_says_which_tls_file_is_not_there():
    told = mistakes(KVADMIN_TLS_CERT="/no/cert.pem", KVADMIN_TLS_KEY="/no/key.pem")
    assert told == [
        f"KVADMIN_TLS_{name}: '/no/{name.lower()}.pem' cannot be opened (No such file or directory). "
        "Write the path of a PEM file."
        for name in ("CERT", "KEY")
    ]


def test_it_says_how_to_convert_a_key_in_the_old_form(tmp_path):
    (tmp_path / "cert.pem").write_text(PEM)
    (tmp_path / "key.pem").write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    (told,) = mistakes(KVADMIN_TLS_CERT=str(tmp_path / "cert.pem"), KVADMIN_TLS_KEY=str(tmp_path / "key.pem"))
    assert "openssl pkcs8 -topk8" in told


@pytest.mark.parametrize(
    ("environ", "exposed"),
    [
        ({}, False),
        ({"KVADMIN_BIND": "::1"}, False),
        ({"KVADMIN_BIND": "0.0.0.0"}, True),
        ({"KVADMIN_BIND": "10.1.2.3"}, True),
        ({"KVADMIN_BIND": "0.0.0.0", "KVADMIN_TRUSTED_PROXIES": "10.0.0.0/8"}, False),
    ],
)
def test_it_knows_when_it_is_exposed(environ, exposed):
    assert read_environment(environ).exposed is exposed


def test_it_shows_an_address_a_browser_can_open():
    assert read_environment({"KVADMIN_BIND": "0.0.0.0"}).console_url == "http://127.0.0.1:8080"
    assert read_environment({"KVADMIN_BIND": "::1"}).gateway_url == "http://[::1]:8081"


def test_it_makes_a_secret_once_and_for_its_owner_only(tmp_path):
    first = generated(tmp_path, "thing", lambda: "one")
    assert generated(tmp_path, "thing", lambda: "two") == first == "one"
    assert (tmp_path / "secrets" / "thing").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["thing"]


def test_it_does_not_go_on_with_an_empty_secret(tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "thing").touch()
    with pytest.raises(EnvironmentMistakes, match="is empty"):
        generated(tmp_path, "thing", lambda: "two")
