"""Logs are JSON, one object a line, and hold no secret."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog

from kvadmin.env import environment
from kvadmin.logs import MASK, logging_settings, redact


@pytest.fixture
def written():
    formatter = logging_settings(environment())["formatters"]["json"]
    from kvadmin.logs import Redacted

    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Redacted(**{key: value for key, value in formatter.items() if key != "()"}))
    root = logging.getLogger()
    root.addHandler(handler)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.removeHandler(handler)


def test_it_writes_one_object_a_line(written):
    logging.getLogger("kvadmin.x").warning("two\nlines %s", 1)
    structlog.get_logger("kvadmin.y").warning("started", engine=3)
    first, second = written()
    assert (first["event"], first["level"], first["logger"]) == ("two\nlines 1", "warning", "kvadmin.x")
    assert (second["event"], second["engine"]) == ("started", 3)


def test_it_writes_no_known_secret(written):
    logging.getLogger("x").error("key is %s", environment().secret_key)
    (line,) = written()
    assert line["event"] == f"key is {MASK}"


def test_it_writes_no_field_called_like_a_secret(written):
    structlog.get_logger("x").error("signed in", password="hunter2", api_key="k", tokens=12)
    (line,) = written()
    assert (line["password"], line["api_key"], line["tokens"]) == (MASK, MASK, 12)


def test_it_writes_no_secret_of_an_exception(written):
    try:
        raise ValueError("postgres://kv:hunter2@db/kv")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = written()
    assert "ValueError" in line["exception"]
    assert "hunter2" not in json.dumps(line)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdef1234567890",
        "sk-kv-abcd1234efgh5678",
        "redis://:hunter22@h/0",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----",
        "VLLM_API_KEY=abcdef123",
    ],
)
def test_it_knows_what_looks_like_a_secret(text):
    assert MASK in redact(text)
    assert not any(part in redact(text) for part in ("1234", "hunter", "abc\n", "abcdef"))


def test_it_leaves_ordinary_text_alone():
    text = "GET http://10.0.0.1:8000/metrics 200 in 12 ms; user@host; task-id sk-1"
    assert redact(text) == text
