from django.db import migrations

# No foreign keys: a row of a key or route that is gone must not fail its whole batch. Rows go with their
# partition. No default partition: it would stand in the way of those that are made later.
USAGE = """
CREATE TABLE routes_usage (
    request_id uuid NOT NULL,
    at timestamptz NOT NULL,
    key_id int8 NOT NULL,
    business_id int8 NOT NULL,
    team_id int8 NOT NULL,
    route_id int8,
    target_id int8,
    engine_id int8,
    path text NOT NULL,
    model text NOT NULL,
    status int4 NOT NULL,
    error_layer text NOT NULL,
    error_code text NOT NULL,
    streamed bool NOT NULL,
    prompt_tokens int8 NOT NULL,
    cached_tokens int8 NOT NULL,
    completion_tokens int8 NOT NULL,
    tokens_source text NOT NULL,
    queue_s float8,
    first_byte_s float8,
    total_s float8 NOT NULL,
    attempts int4 NOT NULL,
    caller text NOT NULL,
    via text NOT NULL,
    via_user_id int8,
    PRIMARY KEY (request_id, at)
) PARTITION BY RANGE (at);
CREATE INDEX routes_usage_key ON routes_usage (key_id, at);
-- rollups read a minute over all keys; rows come about in the order of time
CREATE INDEX routes_usage_time ON routes_usage USING brin (at) WITH (pages_per_range = 16);
COMMENT ON TABLE routes_usage IS 'What one request through the gateway consumed; at is when it began.';

CREATE TABLE routes_usage_dirty (minute timestamptz NOT NULL);
COMMENT ON TABLE routes_usage_dirty IS
    'Minutes that got rows since they were rolled up; a line comes with the rows, in their transaction.';

CREATE TABLE routes_usage_rollup (
    level text PRIMARY KEY CHECK (level IN ('raw', 'minute', 'hour', 'day')),
    upto timestamptz
);
COMMENT ON TABLE routes_usage_rollup IS
    'Everything before upto is rolled up to that level; single rows before that of raw were dropped.';
INSERT INTO routes_usage_rollup (level) VALUES ('raw'), ('minute'), ('hour'), ('day');
"""

USAGE_UNDONE = """
DROP TABLE routes_usage_rollup;
DROP TABLE routes_usage_dirty;
DROP TABLE routes_usage;
"""


def _rollup(table, indexes):
    return f"""
CREATE TABLE {table} (
    at timestamptz NOT NULL,
    key_id int8 NOT NULL,
    business_id int8 NOT NULL,
    team_id int8 NOT NULL,
    route_id int8 NOT NULL,
    engine_id int8 NOT NULL,
    model text NOT NULL,
    requests int8 NOT NULL,
    streamed int8 NOT NULL,
    failed_caller int8 NOT NULL,
    failed_gateway int8 NOT NULL,
    failed_engine int8 NOT NULL,
    prompt_tokens int8 NOT NULL,
    cached_tokens int8 NOT NULL,
    completion_tokens int8 NOT NULL,
    estimated_tokens int8 NOT NULL,
    total_s float8 NOT NULL,
    first_byte_s float8 NOT NULL,
    latency int8[] NOT NULL,
    first_byte int8[] NOT NULL,
    codes jsonb,
    PRIMARY KEY (key_id, at, route_id, engine_id, model)
) PARTITION BY RANGE (at);
CREATE INDEX {table}_time ON {table} USING brin (at) WITH (pages_per_range = 16);
COMMENT ON TABLE {table} IS 'route_id and engine_id are 0 and model is empty where a request got to none.';
""" + "".join(f"CREATE INDEX {table}_{name} ON {table} ({name}_id, at);\n" for name in indexes)


class Migration(migrations.Migration):
    # Tables of time series: partitioned, written by COPY, read by hand-written SQL; no model would help.
    # engines 0004 has the aggregate engines_counts_sum.
    dependencies = [("routes", "0002_notify_gateway"), ("engines", "0004_metric_storage")]

    operations = [
        migrations.RunSQL(USAGE, USAGE_UNDONE),
        migrations.RunSQL(_rollup("routes_usage_minute", ()), "DROP TABLE routes_usage_minute"),
        migrations.RunSQL(
            _rollup("routes_usage_hour", ("business", "team", "route")), "DROP TABLE routes_usage_hour"
        ),
        migrations.RunSQL(
            _rollup("routes_usage_day", ("business", "team", "route")), "DROP TABLE routes_usage_day"
        ),
    ]
