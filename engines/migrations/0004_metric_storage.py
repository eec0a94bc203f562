from django.db import migrations

GAUGES = (
    "kv_usage_ratio",
    "requests_running",
    "requests_waiting",
    "waiting_capacity",
    "waiting_deferred",
    "requests_swapped",
    "cpu_kv_usage_ratio",
    "prefix_cache_hit_rate_gauge",
    "awake_ratio",
)
COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "prompt_tokens_cached",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "external_prefix_cache_queries",
    "external_prefix_cache_hits",
    "preemptions",
    "request_success",
    "finished_stop",
    "finished_length",
    "finished_abort",
    "finished_error",
    "spec_accepted",
    "spec_draft",
    "mm_cache_queries",
    "mm_cache_hits",
    "admission_rejections",
    "est_flops",
)
HISTOGRAMS = (
    "ttft",
    "inter_token_latency",
    "request_tpot_mean",
    "e2e_latency",
    "queue_time",
    "prefill_time",
    "decode_time",
    "prompt_len_hist",
    "gen_len_hist",
    "iteration_tokens",
)

_BUCKETS = [
    "layouts int4[]",
    *(f"{name} int8[]" for name in HISTOGRAMS),
    *(f"{name}_sum float8" for name in HISTOGRAMS),
]


def _columns(*lines):
    return ",\n    ".join(lines)


# No foreign key to the engine: a row of an engine that is gone must not fail its whole batch, and goes
# with its partition.
SAMPLES = f"""
CREATE TABLE engines_sample (
    {
    _columns(
        "engine_id int8 NOT NULL",
        "taken_at timestamptz NOT NULL",
        "process_start float8",
        *(f"{name} float8" for name in GAUGES),
        *(f"{name} float8" for name in COUNTERS),
        *_BUCKETS,
    )
},
    PRIMARY KEY (engine_id, taken_at)
) PARTITION BY RANGE (taken_at);
-- rollups read a span of time over all engines; rows come in the order of time
CREATE INDEX engines_sample_time ON engines_sample USING brin (taken_at) WITH (pages_per_range = 16);
COMMENT ON TABLE engines_sample IS 'One reading of one engine. Bucket columns only once a minute.';
"""


def _rollup(table, time):
    stats = [f"{name}_{what} float8" for name in GAUGES for what in ("avg", "min", "max", "last")]
    return f"""
CREATE TABLE {table} (
    {
        _columns(
            "engine_id int8 NOT NULL",
            f"{time} timestamptz NOT NULL",
            "samples int4 NOT NULL",
            "covered_s float8",
            *stats,
            *(f"{name} float8" for name in COUNTERS),
            *_BUCKETS,
        )
    },
    PRIMARY KEY (engine_id, {time})
) PARTITION BY RANGE ({time});
CREATE INDEX {table}_time ON {table} USING brin ({time}) WITH (pages_per_range = 16);
COMMENT ON TABLE {table} IS 'Counters and buckets are increases; covered_s is the time they grew in.';
"""


REST = """
CREATE TABLE engines_bucket_layout (
    id int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bounds float8[] NOT NULL UNIQUE
);
COMMENT ON TABLE engines_bucket_layout IS 'Upper bounds of histogram buckets, ascending, the last infinity.';

CREATE TABLE engines_rollup (
    level text PRIMARY KEY CHECK (level IN ('minute', 'hour')),
    upto timestamptz
);
COMMENT ON TABLE engines_rollup IS 'How far each rollup is: everything before upto is rolled up.';
INSERT INTO engines_rollup (level) VALUES ('minute'), ('hour');

-- How much a cumulative histogram grew. A count that fell means that the process began anew: then
-- everything counted now is new.
CREATE FUNCTION engines_counts_increase(now int8[], before int8[]) RETURNS int8[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN bool_or(n < b) OR cardinality(now) <> cardinality(before) THEN now
                ELSE array_agg(n - b ORDER BY place) END
    FROM unnest(now, before) WITH ORDINALITY AS pair (n, b, place)
$$;

CREATE FUNCTION engines_counts_add(one int8[], other int8[]) RETURNS int8[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT array_agg(a + b ORDER BY place) FROM unnest(one, other) WITH ORDINALITY AS pair (a, b, place)
$$;

-- Strict, so nulls are passed over and the first value starts the sum.
CREATE AGGREGATE engines_counts_sum(int8[]) (SFUNC = engines_counts_add, STYPE = int8[], PARALLEL = SAFE);
"""

REST_UNDONE = """
DROP AGGREGATE engines_counts_sum(int8[]);
DROP FUNCTION engines_counts_add(int8[], int8[]);
DROP FUNCTION engines_counts_increase(int8[], int8[]);
DROP TABLE engines_rollup;
DROP TABLE engines_bucket_layout;
"""


class Migration(migrations.Migration):
    # Tables of time series: partitioned, written by COPY, read by hand-written SQL; no model would help.
    dependencies = [("engines", "0003_change_sequence")]

    operations = [
        migrations.RunSQL(SAMPLES, "DROP TABLE engines_sample"),
        migrations.RunSQL(_rollup("engines_minute", "minute"), "DROP TABLE engines_minute"),
        migrations.RunSQL(_rollup("engines_hour", "hour"), "DROP TABLE engines_hour"),
        migrations.RunSQL(REST, REST_UNDONE),
    ]
