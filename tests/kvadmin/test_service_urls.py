"""DATABASE_URL and VALKEY_URL in the forms people write them."""

from __future__ import annotations

import pytest
from kombu import Connection

from kvadmin.serviceurls import broker_url, database_settings


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://u:p%40ss@db:5433/kv", ("db", "5433", "u", "p@ss", "kv", {})),
        ("postgresql://u@/kv?host=/run/postgresql", ("/run/postgresql", "", "u", "", "kv", {})),
        ("postgresql://%2Frun%2Fpg/kv", ("/run/pg", "", "", "", "kv", {})),
        (
            "postgres://u:p@db/kv?sslmode=verify-full&sslrootcert=/ca.pem",
            ("db", "", "u", "p", "kv", {"sslmode": "verify-full", "sslrootcert": "/ca.pem"}),
        ),
        ("postgres://u:p@/kv?host=a,b&port=1,2", ("a,b", "1,2", "u", "p", "kv", {})),
    ],
)
def test_it_reads_a_database_url(url, expected):
    found = database_settings(url)
    assert tuple(found[key] for key in ("HOST", "PORT", "USER", "PASSWORD", "NAME", "OPTIONS")) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", "redis://h:6379/0"),
        ("valkey://:p%40@h:7000/3", "redis://:p%40@h:7000/3"),
        ("redis://[::1]:6380/1", "redis://[::1]:6380/1"),
        ("rediss://u:p@h", "rediss://u:p@h:6379/0?ssl_cert_reqs=required"),
        ("rediss://h/0?ssl_cert_reqs=none", "rediss://h:6379/0?ssl_cert_reqs=none"),
        ("unix:///run/valkey.sock?db=2", "redis+socket:///run/valkey.sock?virtual_host=2"),
        ("unix://:p@/run/a%20b.sock", "redis+socket://:p@/run/a%20b.sock?virtual_host=0"),
    ],
)
def test_it_makes_a_broker_url(url, expected):
    assert broker_url(url) == expected
    assert broker_url(expected) == expected


def test_it_checks_certificates_of_a_broker_over_tls():
    assert Connection(broker_url("valkeys://h")).info()["ssl"]["ssl_cert_reqs"].name == "CERT_REQUIRED"
