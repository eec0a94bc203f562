"""Whether the database keeps advisory locks of a session, which everything that must not run twice needs.

A pooler that gives each transaction another backend (PgBouncer in transaction mode) breaks them without
an error: the lock is taken on a backend that others use next.
"""

from __future__ import annotations

import secrets

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

SENTENCE = (
    "The database does not keep a session's advisory locks: a pooler stands in between that gives each "
    "transaction another backend. kvadmin would run operations twice. Let DATABASE_URL point to PostgreSQL "
    "itself, or to a pooler in session mode."
)


class LocksDoNotHold(Exception):
    """Advisory locks are lost between two transactions; the text says what to do."""

    def __init__(self) -> None:
        super().__init__(SENTENCE)


def check_session_locks() -> None:
    """Raise LocksDoNotHold unless a lock taken in one transaction is there in the next one.

    Uses two connections of its own, so it may be called anywhere. Raises DatabaseError when the database
    cannot be reached.
    """
    first, second = connections.create_connection("default"), connections.create_connection("default")
    try:
        if not locks_hold(first, second):
            raise LocksDoNotHold
    finally:
        first.close()
        second.close()


def locks_hold(first: BaseDatabaseWrapper, second: BaseDatabaseWrapper) -> bool:
    """Whether ``first`` finds its lock again, under the same backend, in its next transaction.

    ``second`` keeps a transaction open meanwhile: a pooler gives it the backend that came free, so an idle
    pooler, too, has to give ``first`` another one.
    """
    key = secrets.randbelow(2**31)
    with first.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid(), pg_try_advisory_lock(%s)", [key])
        backend, got = cursor.fetchone()
    second.set_autocommit(False)
    try:
        with second.cursor() as cursor:
            cursor.execute("SELECT 1")
        with first.cursor() as cursor:
            cursor.execute(
                "SELECT pg_backend_pid(), EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory'"
                " AND classid = 0 AND objid = %s AND pid = pg_backend_pid() AND granted)",
                [key],
            )
            now, held = cursor.fetchone()
    finally:
        second.rollback()
        second.set_autocommit(True)
    with first.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [key])
    return got and held and now == backend
