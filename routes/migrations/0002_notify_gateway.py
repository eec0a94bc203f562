from django.db import migrations

# What the gateway keeps of a key; a change of anything else (its last use) wakes nobody.
KEPT = (
    "business_id, name, public_id, digest, models, expires_at, addresses, requests_per_minute, "
    "tokens_per_minute, concurrent, monthly_tokens, disabled_at, revoked_at, overlap_ends_at"
)
#: past so many keys in one statement, one notice to read everything is less work than one for each
MANY = 500

_NOTIFY = """
CREATE FUNCTION routes_notify_keys(ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(ids) > %MANY% THEN
        PERFORM pg_notify('kvadmin_gateway', 'all');
    ELSE
        PERFORM pg_notify('kvadmin_gateway', 'key ' || id) FROM unnest(ids) AS id;
    END IF;
END $$;

CREATE FUNCTION routes_key_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM routes_notify_keys(array(SELECT id FROM new_rows));
    RETURN NULL;
END $$;

CREATE FUNCTION routes_key_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM routes_notify_keys(array(SELECT id FROM old_rows));
    RETURN NULL;
END $$;

CREATE FUNCTION routes_key_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM routes_notify_keys(array(
        SELECT id FROM (
            SELECT id, %KEPT% FROM new_rows EXCEPT SELECT id, %KEPT% FROM old_rows
        ) AS changed
    ));
    RETURN NULL;
END $$;

-- the payload is the trigger's argument
CREATE FUNCTION routes_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('kvadmin_gateway', TG_ARGV[0]);
    RETURN NULL;
END $$;

CREATE TRIGGER routes_key_added AFTER INSERT ON routes_key
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION routes_key_added();
CREATE TRIGGER routes_key_removed AFTER DELETE ON routes_key
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION routes_key_removed();
CREATE TRIGGER routes_key_changed AFTER UPDATE ON routes_key
    REFERENCING NEW TABLE AS new_rows OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION routes_key_changed();
CREATE TRIGGER routes_key_emptied AFTER TRUNCATE ON routes_key
    FOR EACH STATEMENT EXECUTE FUNCTION routes_notify('all');

-- a business that goes to another team takes its keys along
CREATE TRIGGER routes_business_moved AFTER UPDATE ON routes_business
    FOR EACH ROW WHEN (OLD.team_id IS DISTINCT FROM NEW.team_id) EXECUTE FUNCTION routes_notify('all');

CREATE TRIGGER routes_route_notify AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON routes_route
    FOR EACH STATEMENT EXECUTE FUNCTION routes_notify('routes');
CREATE TRIGGER routes_target_notify AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON routes_target
    FOR EACH STATEMENT EXECUTE FUNCTION routes_notify('routes');

-- an engine's row changes with every poll, so only what a target is made of counts
CREATE TRIGGER routes_engine_notify AFTER UPDATE ON engines_engine FOR EACH ROW
    WHEN (
        (OLD.name, OLD.host_id, OLD.port, OLD.observed, OLD.served_names, OLD.max_model_len,
         OLD.vllm_version, OLD.api_key)
        IS DISTINCT FROM
        (NEW.name, NEW.host_id, NEW.port, NEW.observed, NEW.served_names, NEW.max_model_len,
         NEW.vllm_version, NEW.api_key)
    )
    EXECUTE FUNCTION routes_notify('routes');
CREATE TRIGGER routes_host_notify AFTER UPDATE ON engines_host FOR EACH ROW
    WHEN (
        (OLD.kind, OLD.address, OLD.service_address) IS DISTINCT FROM
        (NEW.kind, NEW.address, NEW.service_address)
    )
    EXECUTE FUNCTION routes_notify('routes');
"""

NOTIFY = _NOTIFY.replace("%KEPT%", KEPT).replace("%MANY%", str(MANY))

UNDONE = """
DROP TRIGGER routes_host_notify ON engines_host;
DROP TRIGGER routes_engine_notify ON engines_engine;
DROP TRIGGER routes_target_notify ON routes_target;
DROP TRIGGER routes_route_notify ON routes_route;
DROP TRIGGER routes_business_moved ON routes_business;
DROP TRIGGER routes_key_emptied ON routes_key;
DROP TRIGGER routes_key_changed ON routes_key;
DROP TRIGGER routes_key_removed ON routes_key;
DROP TRIGGER routes_key_added ON routes_key;
DROP FUNCTION routes_notify();
DROP FUNCTION routes_key_changed();
DROP FUNCTION routes_key_removed();
DROP FUNCTION routes_key_added();
DROP FUNCTION routes_notify_keys(bigint[]);
"""


class Migration(migrations.Migration):
    # A trigger, so that a bulk update, another program and psql are seen as well as an action.
    dependencies = [("routes", "0001_initial"), ("engines", "0008_start_tries")]

    operations = [migrations.RunSQL(NOTIFY, UNDONE)]
