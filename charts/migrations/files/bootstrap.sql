-- Roles and schema of ApiPay Hub. Run once per database by a superuser, in the target database:
--
--   psql "$SUPERUSER_DSN" -v ON_ERROR_STOP=1 -f migrations/bootstrap.sql
--
-- It may be run again: it changes nothing that is already right. It sets no passwords; give each role its
-- own afterwards (ALTER ROLE apipay_app PASSWORD '...'), or use certificate or peer authentication.
--
--   apipay_owner   owns every table and runs the migrations; never used at run time
--   apipay_app     payment-api
--   apipay_worker  outbox-relay and webhook-dispatcher
--   apipay_admin   admin-api
--
-- None of them is a superuser and none may bypass row level security.

DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['apipay_owner', 'apipay_app', 'apipay_worker', 'apipay_admin'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role_name) THEN
                EXECUTE format('CREATE ROLE %I LOGIN', role_name);
            END IF;
        EXCEPTION
            -- Roles belong to the cluster: another database's bootstrap may have made them in this instant.
            WHEN duplicate_object OR unique_violation THEN NULL;
        END;
        IF EXISTS (
            SELECT FROM pg_catalog.pg_roles
            WHERE rolname = role_name
              AND (rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolreplication OR NOT rolcanlogin)
        ) THEN
            EXECUTE format(
                'ALTER ROLE %I LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB NOREPLICATION', role_name);
        END IF;
    END LOOP;
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO apipay_owner, apipay_app, apipay_worker, apipay_admin', current_database());
END
$$;

REVOKE ALL ON SCHEMA public FROM PUBLIC;

CREATE SCHEMA IF NOT EXISTS apipay AUTHORIZATION apipay_owner;
REVOKE ALL ON SCHEMA apipay FROM PUBLIC;
GRANT USAGE ON SCHEMA apipay TO apipay_app, apipay_worker, apipay_admin;
