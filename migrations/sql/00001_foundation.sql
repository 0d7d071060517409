-- +goose Up

-- One row: which schema this is and which code may run on it. A service refuses to start when version is
-- below what it needs, or when min_code is above its own code version (see pkg/postgres).
CREATE TABLE apipay.schema_info (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  bigint NOT NULL,
    min_code bigint NOT NULL
);
INSERT INTO apipay.schema_info (version, min_code) VALUES (1, 1);
GRANT SELECT ON apipay.schema_info TO apipay_app, apipay_worker, apipay_admin;

-- The smallest UUIDv7 of an instant: the bound of a time range over ids.
-- +goose StatementBegin
CREATE FUNCTION apipay.uuid7_floor(at timestamptz) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
RETURN (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
-- +goose StatementEnd

-- A new UUIDv7 that carries the millisecond of another one, so that a row found by its own id alone lies
-- in the same week as the event it belongs to.
-- +goose StatementBegin
CREATE FUNCTION apipay.uuid7_beside(id uuid) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
RETURN (left(id::text, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid;
-- +goose StatementEnd

-- Row level security for one table: enabled, forced, and with the four policies of every table that
-- belongs to a tenant. mode_isolation only where the table knows test and live mode.
-- +goose StatementBegin
CREATE PROCEDURE apipay.isolate(table_name text, tenant_column text DEFAULT 'tenant_id', has_livemode boolean DEFAULT true)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    tenant text := format('%I = NULLIF(current_setting(''app.tenant_id'', true), '''')::uuid', tenant_column);
    mode text := 'livemode = NULLIF(current_setting(''app.livemode'', true), '''')::boolean';
    support text := format(
        'current_setting(''app.admin_scope'', true) = ''*'' OR %I::text = ANY (string_to_array(current_setting(''app.admin_scope'', true), '',''))',
        tenant_column);
BEGIN
    EXECUTE format('ALTER TABLE apipay.%I ENABLE ROW LEVEL SECURITY', table_name);
    EXECUTE format('ALTER TABLE apipay.%I FORCE ROW LEVEL SECURITY', table_name);
    EXECUTE format('CREATE POLICY tenant_isolation ON apipay.%I FOR ALL TO apipay_app USING (%s) WITH CHECK (%s)', table_name, tenant, tenant);
    IF has_livemode THEN
        EXECUTE format('CREATE POLICY mode_isolation ON apipay.%I AS RESTRICTIVE FOR ALL TO apipay_app USING (%s) WITH CHECK (%s)', table_name, mode, mode);
    END IF;
    EXECUTE format('CREATE POLICY platform_access ON apipay.%I FOR ALL TO apipay_worker USING (true) WITH CHECK (true)', table_name);
    EXECUTE format('CREATE POLICY support_access ON apipay.%I FOR ALL TO apipay_admin USING (%s) WITH CHECK (%s)', table_name, support, support);
    EXECUTE format('CREATE POLICY owner_access ON apipay.%I FOR ALL TO apipay_owner USING (true) WITH CHECK (true)', table_name);
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION apipay.uuid7_floor(timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION apipay.uuid7_beside(uuid) FROM PUBLIC;
REVOKE ALL ON PROCEDURE apipay.isolate(text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION apipay.uuid7_floor(timestamptz) TO apipay_app, apipay_worker, apipay_admin;
GRANT EXECUTE ON FUNCTION apipay.uuid7_beside(uuid) TO apipay_worker;

CREATE TABLE apipay.tenants (
    id         uuid PRIMARY KEY,
    name       text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT now()
);
-- The admin list, newest first, by keyset.
CREATE INDEX tenants_by_created ON apipay.tenants (created_at, id);
CALL apipay.isolate('tenants', 'id', false);
-- The reserved tenant of platform-level audit entries.
INSERT INTO apipay.tenants (id, name) VALUES ('00000000-0000-0000-0000-000000000000', 'platform');
GRANT SELECT ON apipay.tenants TO apipay_app, apipay_worker, apipay_admin;
GRANT INSERT ON apipay.tenants TO apipay_admin;

CREATE TABLE apipay.api_keys (
    id           uuid PRIMARY KEY,
    tenant_id    uuid NOT NULL REFERENCES apipay.tenants (id),
    livemode     boolean NOT NULL,
    hash         bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    last4        text NOT NULL CHECK (char_length(last4) = 4),
    scopes       text[] NOT NULL CHECK (scopes <@ ARRAY[
                     'payment_intents:read', 'payment_intents:write', 'refunds:read', 'refunds:write',
                     'webhook_endpoints:read', 'webhook_endpoints:write', 'events:read']),
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    -- The key that took this one's place in a roll.
    rolled_to    uuid,
    UNIQUE (tenant_id, livemode, id)
);
CREATE INDEX api_keys_by_tenant ON apipay.api_keys (tenant_id, created_at, id);
CALL apipay.isolate('api_keys');
GRANT SELECT, UPDATE (last_used_at) ON apipay.api_keys TO apipay_app;
GRANT SELECT, INSERT, UPDATE (expires_at, revoked_at, rolled_to) ON apipay.api_keys TO apipay_admin;

-- Whose key is this? Asked before a tenant is known, hence SECURITY DEFINER; it answers ids only, and the
-- key itself is then read inside that tenant's own transaction.
-- +goose StatementBegin
CREATE FUNCTION apipay.find_api_key(key_hash bytea)
RETURNS TABLE (tenant_id uuid, livemode boolean, id uuid)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT k.tenant_id, k.livemode, k.id FROM apipay.api_keys k WHERE k.hash = key_hash;
END;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION apipay.find_api_key(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION apipay.find_api_key(bytea) TO apipay_app;

-- +goose Down
DROP FUNCTION apipay.find_api_key(bytea);
DROP TABLE apipay.api_keys, apipay.tenants, apipay.schema_info;
DROP PROCEDURE apipay.isolate(text, text, boolean);
DROP FUNCTION apipay.uuid7_beside(uuid);
DROP FUNCTION apipay.uuid7_floor(timestamptz);
