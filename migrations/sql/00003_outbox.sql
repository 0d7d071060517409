-- +goose Up

-- What an insert must satisfy is in the types, and what a later state must satisfy is in a trigger (below): Postgres
-- reads a table's CHECK constraints anew in every statement, and eight of them were 45 % of what this insert, which
-- is in every business transaction, cost the server. A domain's are read once per session.
CREATE DOMAIN apipay.outbox_topic AS text
    CHECK (VALUE IN ('apipay.payment-events.v1', 'apipay.outbound-webhooks.v1', 'apipay.audit.v1'));
CREATE DOMAIN apipay.outbox_lane AS smallint CHECK (VALUE BETWEEN 0 AND 63);

-- One row per business event, written in the transaction that makes it true. Partitioned by week over its
-- UUIDv7 id. No foreign key to tenants: its key-share lock on one tenant's row would be taken by every
-- transaction of that tenant; the object that the event is about carries that key already.
CREATE TABLE apipay.outbox_events (
    -- Half full, as the index by tenant below: each row is updated once, when it is published, and since the index of
    -- pending rows must lose it then, every index gets a second entry beside the first. Where that finds no room it costs
    -- a third of the whole update in attempts to make some.
    id                  uuid PRIMARY KEY WITH (fillfactor = 50, deduplicate_items = off),
    tenant_id           uuid NOT NULL,
    livemode            boolean NOT NULL,
    topic               apipay.outbox_topic NOT NULL,
    -- (murmur2(tenant_id as text) & 0x7fffffff) % 64, computed by pkg/outbox. A column and not an expression
    -- index: under row level security an index over a function that is not leakproof loses its order.
    lane                apipay.outbox_lane NOT NULL,
    -- Assigned at the insert, after the object's row lock was taken: the order within an object.
    seq                 bigint GENERATED ALWAYS AS IDENTITY,
    type                text NOT NULL,
    payload             bytea NOT NULL CHECK (payload <> ''),
    traceparent         text,
    created_at          timestamptz NOT NULL DEFAULT now(),
    published_at        timestamptz,
    kafka_partition     integer,
    kafka_offset        bigint,
    -- Refused by the broker for itself, with the broker's reason. admin-api asks for a replay; the relay acts.
    parked_at           timestamptz,
    parked_reason       text,
    replay_requested_at timestamptz,
    -- When the relay last took up such a request. Parked later than that, it was refused again.
    last_replay_at      timestamptz,
    discarded_at        timestamptz,
    discarded_by        text,
    discard_reason      text
) PARTITION BY RANGE (id);
-- The relay's claim: predicate and order match it exactly, so its cost follows the backlog, not the table.
CREATE INDEX outbox_events_pending ON apipay.outbox_events (topic, lane, seq)
    WHERE published_at IS NULL AND parked_at IS NULL;
CREATE INDEX outbox_events_parked ON apipay.outbox_events (parked_at, id) WHERE parked_at IS NOT NULL;
-- The merchant's event list.
CREATE INDEX outbox_events_by_tenant ON apipay.outbox_events (tenant_id, livemode, id)
    WITH (fillfactor = 50, deduplicate_items = off) WHERE topic = 'apipay.outbound-webhooks.v1';
CREATE TABLE apipay.outbox_events_default PARTITION OF apipay.outbox_events DEFAULT;
CALL apipay.isolate('outbox_events');
-- Nobody reads a partition by itself: rows are reached through the parent and its policies.
ALTER TABLE apipay.outbox_events_default ENABLE ROW LEVEL SECURITY;
ALTER TABLE apipay.outbox_events_default FORCE ROW LEVEL SECURITY;
-- A row is born pending: nobody but the owner can insert one in another state.
GRANT SELECT, INSERT (id, tenant_id, livemode, topic, lane, type, payload, traceparent, created_at)
    ON apipay.outbox_events TO apipay_app, apipay_worker, apipay_admin;
GRANT UPDATE (published_at, kafka_partition, kafka_offset, parked_at, parked_reason, replay_requested_at, last_replay_at)
    ON apipay.outbox_events TO apipay_worker;
GRANT UPDATE (replay_requested_at, discarded_at, discarded_by, discard_reason) ON apipay.outbox_events TO apipay_admin;

-- +goose StatementBegin
CREATE FUNCTION apipay.refuse_outbox_state() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'outbox event % cannot be in this state', NEW.id
        USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME, TABLE = 'outbox_events', SCHEMA = 'apipay',
              HINT = 'parked is unpublished, with a reason; discarded is parked, by whom and why; a replay is asked for what is parked';
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION apipay.refuse_outbox_state() FROM PUBLIC;
-- Impossible states, refused as a CHECK would. AFTER, since a BEFORE trigger would lock each row that the relay marks once
-- more.
CREATE TRIGGER outbox_events_state
    AFTER UPDATE OF published_at, parked_at, parked_reason, replay_requested_at, discarded_at, discarded_by, discard_reason
    ON apipay.outbox_events FOR EACH ROW
    WHEN (NOT ((NEW.parked_at IS NULL OR NEW.published_at IS NULL)
        AND (NEW.parked_at IS NULL) = (NEW.parked_reason IS NULL)
        AND (NEW.discarded_at IS NULL OR NEW.parked_at IS NOT NULL)
        AND (NEW.discarded_at IS NULL) = (NEW.discard_reason IS NULL) AND (NEW.discarded_at IS NULL) = (NEW.discarded_by IS NULL)
        AND (NEW.replay_requested_at IS NULL OR NEW.parked_at IS NOT NULL)))
    EXECUTE FUNCTION apipay.refuse_outbox_state();

CREATE TABLE apipay.audit_log (
    id         uuid PRIMARY KEY,
    -- The nil UUID for what concerns no single tenant.
    tenant_id  uuid NOT NULL REFERENCES apipay.tenants (id),
    livemode   boolean NOT NULL,
    actor      text NOT NULL,
    role       text NOT NULL,
    action     text NOT NULL,
    target     text NOT NULL,
    request_id text,
    ip         text,
    changes    jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now()
);
-- The log, newest first, by keyset: all of it, and by each filter.
CREATE INDEX audit_log_by_created ON apipay.audit_log (created_at, id);
CREATE INDEX audit_log_by_tenant ON apipay.audit_log (tenant_id, created_at, id);
CREATE INDEX audit_log_by_target ON apipay.audit_log (target, created_at, id);
CREATE INDEX audit_log_by_actor ON apipay.audit_log (actor, created_at, id);
CREATE INDEX audit_log_by_action ON apipay.audit_log (action, created_at, id);
CALL apipay.isolate('audit_log');
GRANT INSERT ON apipay.audit_log TO apipay_app, apipay_worker, apipay_admin;
GRANT SELECT ON apipay.audit_log TO apipay_admin;

-- The only way that an audit entry goes: by age. admin-api calls it, and can delete nothing otherwise; a keep
-- below 30 days is refused, so that a wrong setting does not empty the log. Returns how many went.
-- +goose StatementBegin
CREATE FUNCTION apipay.expire_audit_log(keep interval, max_rows integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    gone bigint;
BEGIN
    IF keep IS NULL OR keep < interval '30 days' THEN
        RAISE EXCEPTION 'audit entries are kept for at least 30 days' USING ERRCODE = '22023';
    END IF;
    -- The ids carry the entries' time, so the oldest are the first of the primary key.
    WITH old AS (
        SELECT id FROM apipay.audit_log WHERE id < apipay.uuid7_floor(now() - keep) AND created_at < now() - keep
        ORDER BY id LIMIT max_rows FOR UPDATE SKIP LOCKED)
    DELETE FROM apipay.audit_log a USING old WHERE a.id = old.id;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION apipay.expire_audit_log(interval, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION apipay.expire_audit_log(interval, integer) TO apipay_admin;

-- +goose Down
DROP FUNCTION apipay.expire_audit_log(interval, integer);
DROP TABLE apipay.audit_log, apipay.outbox_events;
DROP FUNCTION apipay.refuse_outbox_state();
DROP DOMAIN apipay.outbox_topic, apipay.outbox_lane;
