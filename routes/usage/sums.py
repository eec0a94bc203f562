"""SQL that sums single rows, or rollups, into rollups. Pure."""

from __future__ import annotations

from routes.usage.buckets import BOUNDS, COUNT

_BOUNDS = f"ARRAY[{', '.join(map(str, BOUNDS))}]::float8[]"
#: what no error cut short: only that says how quick the answers are
_ANSWERED = "error_layer = ''"
#: a row that names no route has whatever its caller wrote as its model
_MODEL = "CASE WHEN route_id IS NULL THEN '' ELSE model END"
KEYS = "key_id, business_id, team_id, route_id, engine_id, model"


def _buckets(value: str) -> str:
    counts = ", ".join(
        f"count(*) FILTER (WHERE {_ANSWERED} AND width_bucket({value}, {_BOUNDS}) = {n})"
        for n in range(COUNT)
    )
    return f"ARRAY[{counts}]::int8[]"


def from_rows(step: str, where: str) -> str:
    """Rollups by ``step`` (minute, hour or day) of the single rows that ``where`` names."""
    at = f"date_trunc('{step}', at, 'UTC')"
    return f"""
SELECT sums.*, codes.codes FROM (
    SELECT {at} AS at, key_id, max(business_id) AS business_id, max(team_id) AS team_id,
        coalesce(route_id, 0) AS route_id, coalesce(engine_id, 0) AS engine_id, {_MODEL} AS model,
        count(*) AS requests,
        count(*) FILTER (WHERE streamed) AS streamed,
        count(*) FILTER (WHERE error_layer = 'caller') AS failed_caller,
        count(*) FILTER (WHERE error_layer = 'gateway') AS failed_gateway,
        count(*) FILTER (WHERE error_layer NOT IN ('', 'caller', 'gateway')) AS failed_engine,
        sum(prompt_tokens)::int8 AS prompt_tokens,
        sum(cached_tokens)::int8 AS cached_tokens,
        sum(completion_tokens)::int8 AS completion_tokens,
        coalesce(sum(prompt_tokens + completion_tokens)
            FILTER (WHERE tokens_source NOT IN ('', 'engine')), 0)::int8 AS estimated_tokens,
        coalesce(sum(total_s) FILTER (WHERE {_ANSWERED}), 0) AS total_s,
        coalesce(sum(first_byte_s) FILTER (WHERE {_ANSWERED}), 0) AS first_byte_s,
        {_buckets("total_s")} AS latency,
        {_buckets("first_byte_s")} AS first_byte
    FROM routes_usage WHERE {where} GROUP BY 1, key_id, 5, 6, 7
) AS sums LEFT JOIN (
    SELECT at, key_id, route_id, engine_id, model, jsonb_object_agg(kind, n) AS codes FROM (
        SELECT {at} AS at, key_id, coalesce(route_id, 0) AS route_id, coalesce(engine_id, 0) AS engine_id,
            {_MODEL} AS model, error_layer || ':' || error_code AS kind, count(*) AS n
        FROM routes_usage WHERE {where} AND error_layer <> '' GROUP BY 1, 2, 3, 4, 5, 6
    ) AS kinds GROUP BY 1, 2, 3, 4, 5
) AS codes USING (at, key_id, route_id, engine_id, model)
"""


def from_rollup(table: str, step: str, where: str) -> str:
    """Rollups by ``step`` of the rollups in ``table`` that ``where`` names."""
    at = f"date_trunc('{step}', at, 'UTC')"
    return f"""
SELECT sums.*, codes.codes FROM (
    SELECT {at} AS at, key_id, max(business_id) AS business_id, max(team_id) AS team_id,
        route_id, engine_id, model,
        sum(requests)::int8 AS requests, sum(streamed)::int8 AS streamed,
        sum(failed_caller)::int8 AS failed_caller, sum(failed_gateway)::int8 AS failed_gateway,
        sum(failed_engine)::int8 AS failed_engine,
        sum(prompt_tokens)::int8 AS prompt_tokens, sum(cached_tokens)::int8 AS cached_tokens,
        sum(completion_tokens)::int8 AS completion_tokens, sum(estimated_tokens)::int8 AS estimated_tokens,
        sum(total_s) AS total_s, sum(first_byte_s) AS first_byte_s,
        engines_counts_sum(latency) AS latency, engines_counts_sum(first_byte) AS first_byte
    FROM {table} WHERE {where} GROUP BY 1, key_id, route_id, engine_id, model
) AS sums LEFT JOIN (
    SELECT at, key_id, route_id, engine_id, model, jsonb_object_agg(kind, n) AS codes FROM (
        SELECT {at} AS at, key_id, route_id, engine_id, model, kind, sum(n::int8)::int8 AS n
        FROM {table}, jsonb_each_text(codes) AS counted (kind, n)
        WHERE codes IS NOT NULL AND {where} GROUP BY 1, 2, 3, 4, 5, 6
    ) AS kinds GROUP BY 1, 2, 3, 4, 5
) AS codes USING (at, key_id, route_id, engine_id, model)
"""
