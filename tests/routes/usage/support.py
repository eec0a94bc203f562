"""Usage rows, and the tests' database as the gateway reaches it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from engines.metrics.partitions import ensure_partitions
from routes.gateway.records import UsageRecord
from routes.gateway.usagelines import COLUMNS
from routes.usage.tables import RAW

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def connect_arguments() -> dict[str, Any]:
    found = connection.settings_dict
    given = {
        "host": found["HOST"],
        "port": found["PORT"],
        "user": found["USER"],
        "password": found["PASSWORD"],
        "dbname": found["NAME"],
    }
    return {name: value for name, value in given.items() if value}


def usage(seconds: float = 0, **values: Any) -> UsageRecord:
    """A row that began ``seconds`` after noon."""
    given = {"key_id": 1, "business_id": 1, "team_id": 1, "path": "/v1/chat/completions", "status": 200}
    given |= {"route_id": 1, "engine_id": 1, "model": "qwen3-8b", "total_s": 0.5, "caller": "10.1.2.3"}
    given |= {"tokens_source": "engine", "attempts": 1}
    return UsageRecord(request_id=str(uuid.uuid4()), at=NOON.timestamp() + seconds, **{**given, **values})


def rows(sql: str, *parameters: Any) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def clear() -> None:
    """Remove what rows of usage left: they are committed by connections that no test rolls back."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = ANY(ARRAY["
            "'routes_usage', 'routes_usage_minute', 'routes_usage_hour', 'routes_usage_day']::regclass[])"
        )
        for (name,) in cursor.fetchall():
            cursor.execute(f"DROP TABLE {name}")
        cursor.execute("DELETE FROM routes_usage_dirty")
        cursor.execute("UPDATE routes_usage_rollup SET upto = NULL")


def store(*records: UsageRecord) -> None:
    """Put rows into the tables in this test's own transaction, as the shipper does in one of its own."""
    for day in {RAW.start(datetime.fromtimestamp(one.at, UTC)) for one in records}:
        ensure_partitions(day, day, (RAW,))
    names = list(COLUMNS)
    marks = ", ".join("to_timestamp(%s)" if name == "at" else "%s" for name in names)
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO routes_usage ({', '.join(names)}) VALUES ({marks})",
            [[getattr(one, name) for name in names] for one in records],
        )
        cursor.execute(
            "INSERT INTO routes_usage_dirty SELECT DISTINCT date_trunc('minute', to_timestamp(at))"
            " FROM unnest(%s::float8[]) AS at",
            [[one.at for one in records]],
        )


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)
