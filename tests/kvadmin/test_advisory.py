"""Advisory locks of a session: found on PostgreSQL itself, missed behind a pooler of transactions."""

from __future__ import annotations

import pytest
from django.core.checks import run_checks
from django.db import OperationalError, connection, connections

from engines.tasks import poll
from kvadmin import advisory, celery
from kvadmin.advisory import LocksDoNotHold, check_session_locks, locks_hold

pytestmark = pytest.mark.django_db(transaction=True)


class Pooler:
    """What PgBouncer in transaction mode does: a connection gets whatever backend is free."""

    def __init__(self) -> None:
        self.free = [connections.create_connection("default") for _ in range(2)]
        self.all = list(self.free)

    def connect(self) -> PooledConnection:
        return PooledConnection(self)

    def close(self) -> None:
        for backend in self.all:
            backend.close()


class PooledConnection:
    def __init__(self, pooler: Pooler) -> None:
        self._pooler, self._held, self._autocommit = pooler, None, True

    def set_autocommit(self, on: bool) -> None:
        self._autocommit = on

    def cursor(self):
        backend = self._held or self._pooler.free.pop()
        if self._autocommit:
            self._pooler.free.append(backend)
        else:
            self._held = backend
        return backend.cursor()

    def rollback(self) -> None:
        if self._held is not None:
            self._pooler.free.append(self._held)
            self._held = None


@pytest.fixture
def pooled(monkeypatch):
    pooler = Pooler()
    monkeypatch.setattr(
        advisory, "check_session_locks", lambda: _refuse(locks_hold(pooler.connect(), pooler.connect()))
    )
    yield pooler
    pooler.close()


def _refuse(held: bool) -> None:
    if not held:
        raise LocksDoNotHold


def test_postgresql_itself_keeps_them_and_none_is_left():
    check_session_locks()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND datname = current_database()"
        )
        assert cursor.fetchone() == (0,)


def test_a_pooler_of_transactions_is_found_out_also_when_idle(pooled):
    assert not locks_hold(pooled.connect(), pooled.connect())


def test_a_worker_does_not_start_behind_one(pooled):
    with pytest.raises(SystemExit) as ended:
        celery.check_locks()
    assert "session mode" in str(ended.value)


def test_a_worker_starts_where_locks_hold():
    celery.check_locks()


def test_a_worker_waits_for_a_database_that_is_away(monkeypatch, caplog):
    answers = iter([OperationalError("the server is starting"), None])

    def check() -> None:
        if error := next(answers):
            raise error

    monkeypatch.setattr(advisory, "check_session_locks", check)
    monkeypatch.setattr(celery, "LOCK_CHECK_WAIT_S", 0)
    celery.check_locks()
    assert next(answers, "asked twice") == "asked twice"


def test_the_poller_does_not_begin_behind_one(pooled, caplog):
    assert poll.keep_polling() is False
    assert "session mode" in caplog.text


def test_the_system_check_says_it(pooled):
    assert [found.id for found in run_checks(databases=["default"]) if "pooler" in found.msg] == [
        "kvadmin.E001"
    ]


def test_the_system_check_is_silent_where_locks_hold():
    assert not [found for found in run_checks(databases=["default"]) if found.id == "kvadmin.E001"]
