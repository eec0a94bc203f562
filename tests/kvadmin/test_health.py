"""/healthz and /readyz of the console."""

from __future__ import annotations

import pytest
import redis
from django.db import DatabaseError

from kvadmin import health, valkey
from kvadmin.celery import QUEUES, app, heartbeat_key, say_alive


@pytest.fixture(autouse=True)
def no_heartbeats():
    valkey.client().delete(*(heartbeat_key(queue) for queue in QUEUES))
    yield
    valkey.client().delete(*(heartbeat_key(queue) for queue in QUEUES))


def beat(monkeypatch, *queues):
    monkeypatch.setattr("kvadmin.celery._last_beat", -1000.0)
    monkeypatch.setattr(app.amqp.queues, "_consume_from", dict.fromkeys(queues))
    say_alive()


def test_healthz_needs_no_database(client):
    # no django_db here: a query would fail the test
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_it_answers_under_whatever_name_it_is_asked(client):
    assert client.get("/healthz", headers={"host": "10.1.2.3:8080"}).status_code == 200
    assert client.get("/account/login/", headers={"host": "10.1.2.3:8080"}).status_code == 400


@pytest.mark.django_db
def test_it_is_ready_when_each_queue_has_a_worker(client, monkeypatch):
    beat(monkeypatch, *QUEUES)
    answer = client.get("/readyz")
    assert answer.status_code == 200, answer.json()
    assert answer["Cache-Control"] == "no-store"


@pytest.mark.django_db
def test_it_names_the_queues_without_a_worker(client, monkeypatch):
    beat(monkeypatch, "ops")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["worker"] == "none for poll, rollup"


@pytest.mark.django_db
def test_it_says_that_valkey_does_not_answer(client, settings):
    settings.CELERY_BROKER_URL = "redis+socket://:x@/nowhere/valkey.sock?virtual_host=0"
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["valkey"] == "does not answer"


@pytest.mark.django_db
def test_it_says_that_the_database_does_not_answer(client, monkeypatch):
    def gone():
        raise DatabaseError("password for kv is hunter2")

    monkeypatch.setattr(health.connection, "cursor", gone)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"] == "does not answer"
    assert "hunter2" not in answer.content.decode()


@pytest.mark.django_db
def test_it_says_that_migrations_are_missing(client, monkeypatch):
    health._migrated.cache_clear()
    monkeypatch.setattr(health.MigrationExecutor, "migration_plan", lambda self, targets: ["one"])
    answer = client.get("/readyz")
    health._migrated.cache_clear()
    assert answer.status_code == 503
    assert answer.json()["checks"]["migrations"] == "are missing"


def test_a_heartbeat_that_cannot_be_written_is_no_error(monkeypatch, settings):
    settings.CELERY_BROKER_URL = "redis+socket://:x@/nowhere/valkey.sock?virtual_host=0"
    with pytest.raises(redis.RedisError):
        valkey.client().ping()
    beat(monkeypatch, "ops")
