-- +goose Up

CREATE TABLE apipay.webhook_endpoints (
    id              uuid PRIMARY KEY,
    tenant_id       uuid NOT NULL REFERENCES apipay.tenants (id),
    livemode        boolean NOT NULL,
    url             text NOT NULL CHECK (octet_length(url) BETWEEN 1 AND 2048),
    enabled_events  text[] NOT NULL CHECK (cardinality(enabled_events) BETWEEN 1 AND 100),
    description     text,
    status          text NOT NULL DEFAULT 'enabled' CHECK (status IN ('enabled', 'disabled')),
    disabled_reason text,
    -- Counters of failure count from here: creation, or the last time it was switched on again.
    enabled_at      timestamptz NOT NULL DEFAULT now(),
    deleted_at      timestamptz,
    version         bigint NOT NULL DEFAULT 0 CHECK (version >= 0),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, livemode, id),
    CONSTRAINT webhook_endpoints_reason_by_status CHECK ((status = 'disabled') = (disabled_reason IS NOT NULL))
);
CREATE INDEX webhook_endpoints_by_tenant ON apipay.webhook_endpoints (tenant_id, livemode, created_at, id)
    WHERE deleted_at IS NULL;
-- The admin list over all tenants, deleted ones included.
CREATE INDEX webhook_endpoints_by_created ON apipay.webhook_endpoints (created_at, id);
CALL apipay.isolate('webhook_endpoints');
GRANT SELECT, INSERT, UPDATE (url, enabled_events, description, status, disabled_reason, enabled_at, deleted_at, version, updated_at)
    ON apipay.webhook_endpoints TO apipay_app;
GRANT SELECT, UPDATE (status, disabled_reason, version, updated_at) ON apipay.webhook_endpoints TO apipay_worker;
GRANT SELECT, UPDATE (url, enabled_events, description, status, disabled_reason, enabled_at, version, updated_at)
    ON apipay.webhook_endpoints TO apipay_admin;

-- Signing secrets, encrypted (Tink AEAD, associated data = the secret's id). The active one has no
-- expires_at; during a rotation the previous one signs until its expires_at.
CREATE TABLE apipay.webhook_endpoint_secrets (
    id          uuid PRIMARY KEY,
    tenant_id   uuid NOT NULL,
    livemode    boolean NOT NULL,
    endpoint_id uuid NOT NULL,
    ciphertext  bytea NOT NULL,
    -- The id of the key in the key set that encrypted it: what a rotation of the key set still has to do.
    key_id      bigint NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz,
    FOREIGN KEY (tenant_id, livemode, endpoint_id) REFERENCES apipay.webhook_endpoints (tenant_id, livemode, id)
);
CREATE UNIQUE INDEX webhook_endpoint_secrets_one_active ON apipay.webhook_endpoint_secrets (endpoint_id)
    WHERE expires_at IS NULL;
CREATE INDEX webhook_endpoint_secrets_by_endpoint ON apipay.webhook_endpoint_secrets (endpoint_id, created_at);
CALL apipay.isolate('webhook_endpoint_secrets');
GRANT SELECT, INSERT, UPDATE (expires_at), DELETE ON apipay.webhook_endpoint_secrets TO apipay_app;
GRANT SELECT, UPDATE (ciphertext, key_id), DELETE ON apipay.webhook_endpoint_secrets TO apipay_worker;

-- What the dispatcher knows of an endpoint's reachability; written by it alone, apart from the endpoint's
-- row, which merchants and staff change.
CREATE TABLE apipay.webhook_endpoint_states (
    endpoint_id             uuid PRIMARY KEY,
    tenant_id               uuid NOT NULL,
    livemode                boolean NOT NULL,
    -- First failure after the last success, creation or re-enabling; NULL while all is well.
    failing_since           timestamptz,
    failed_attempts         integer NOT NULL DEFAULT 0,
    last_failure_at         timestamptz,
    last_success_at         timestamptz,
    -- The endpoint's enabled_at that these counters belong to: another one means that it was switched on again, and that
    -- they start anew with the next attempt.
    counted_from            timestamptz,
    -- How many of the warnings (1 day, 4 days) were told since failing_since.
    warnings_told           smallint NOT NULL DEFAULT 0,
    -- Timeouts and connect failures in a row; five open the breaker.
    consecutive_unreachable integer NOT NULL DEFAULT 0,
    breaker_opened_at       timestamptz,
    next_probe_at           timestamptz,
    FOREIGN KEY (tenant_id, livemode, endpoint_id) REFERENCES apipay.webhook_endpoints (tenant_id, livemode, id)
);
CALL apipay.isolate('webhook_endpoint_states');
GRANT SELECT, INSERT, UPDATE ON apipay.webhook_endpoint_states TO apipay_worker;
GRANT SELECT ON apipay.webhook_endpoint_states TO apipay_app, apipay_admin;

-- Hourly roll-ups per endpoint: what charts and counts are read from.
CREATE TABLE apipay.webhook_endpoint_health (
    endpoint_id     uuid NOT NULL,
    hour            timestamptz NOT NULL,
    tenant_id       uuid NOT NULL,
    livemode        boolean NOT NULL,
    succeeded       bigint NOT NULL DEFAULT 0,
    failed          bigint NOT NULL DEFAULT 0,
    -- Attempts by latency: up to 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000 ms, and above.
    latency_buckets bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0,0,0}' CHECK (cardinality(latency_buckets) = 11),
    -- Failures by error class.
    failures        jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (endpoint_id, hour),
    FOREIGN KEY (tenant_id, livemode, endpoint_id) REFERENCES apipay.webhook_endpoints (tenant_id, livemode, id)
);
CREATE INDEX webhook_endpoint_health_by_hour ON apipay.webhook_endpoint_health (hour);
CALL apipay.isolate('webhook_endpoint_health');
GRANT SELECT, INSERT, UPDATE (succeeded, failed, latency_buckets, failures), DELETE
    ON apipay.webhook_endpoint_health TO apipay_worker;
GRANT SELECT ON apipay.webhook_endpoint_health TO apipay_app, apipay_admin;

-- Every event that reached the dispatcher, with the bytes that are sent. A row without deliveries says that
-- nobody was subscribed; its presence is what makes a redelivered record harmless.
CREATE TABLE apipay.webhook_events (
    event_id          uuid PRIMARY KEY,
    tenant_id         uuid NOT NULL,
    livemode          boolean NOT NULL,
    type              text NOT NULL,
    body              bytea NOT NULL,
    traceparent       text,
    kafka_topic       text NOT NULL,
    kafka_partition   integer NOT NULL,
    kafka_offset      bigint NOT NULL,
    endpoints_matched integer NOT NULL DEFAULT 0 CHECK (endpoints_matched >= 0),
    -- The event's own time, whole seconds.
    event_created_at  timestamptz NOT NULL,
    received_at       timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (event_id);
CREATE TABLE apipay.webhook_events_default PARTITION OF apipay.webhook_events DEFAULT;
CALL apipay.isolate('webhook_events');
ALTER TABLE apipay.webhook_events_default ENABLE ROW LEVEL SECURITY;
ALTER TABLE apipay.webhook_events_default FORCE ROW LEVEL SECURITY;
GRANT SELECT, INSERT ON apipay.webhook_events TO apipay_worker;
GRANT SELECT ON apipay.webhook_events TO apipay_app, apipay_admin;

-- One event to one endpoint: audit record and retry queue at once. Partitioned with its event; its own id
-- carries the event's millisecond, so (event_id range of that millisecond, id) finds it in one partition.
CREATE TABLE apipay.outbound_webhook_deliveries (
    event_id          uuid NOT NULL,
    endpoint_id       uuid NOT NULL,
    id                uuid NOT NULL,
    tenant_id         uuid NOT NULL,
    livemode          boolean NOT NULL,
    event_type        text NOT NULL,
    status            text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'RETRYING', 'DELIVERED', 'FAILED')),
    -- 0 first attempts and those asked for by hand, 1 scheduled retries and recoveries: the claim serves 0 first.
    priority          smallint NOT NULL DEFAULT 0 CHECK (priority IN (0, 1)),
    -- What causes the next attempt.
    trigger           text NOT NULL DEFAULT 'scheduled' CHECK (trigger IN ('scheduled', 'manual', 'recovery')),
    attempt_count     integer NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    next_attempt_at   timestamptz,
    -- When it was last made due by its event, by hand or by a recovery: held rows expire 7 days later.
    due_since         timestamptz NOT NULL DEFAULT now(),
    -- The claim: set while a POST is in flight. The token fences late writers out.
    lease_token       uuid,
    lease_until       timestamptz,
    -- Leases in a row that ended without a result.
    lost_leases       smallint NOT NULL DEFAULT 0,
    recovery_id       uuid,
    delivered_at      timestamptz,
    failed_at         timestamptz,
    failure_reason    text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_id, endpoint_id),
    FOREIGN KEY (tenant_id, livemode, endpoint_id) REFERENCES apipay.webhook_endpoints (tenant_id, livemode, id),
    CONSTRAINT outbound_webhook_deliveries_due_by_status
        CHECK ((status IN ('PENDING', 'RETRYING')) = (next_attempt_at IS NOT NULL)),
    CONSTRAINT outbound_webhook_deliveries_failed_by_status
        CHECK ((status = 'FAILED') = (failed_at IS NOT NULL) AND (status = 'FAILED') = (failure_reason IS NOT NULL)),
    CONSTRAINT outbound_webhook_deliveries_delivered_has_time CHECK (status <> 'DELIVERED' OR delivered_at IS NOT NULL),
    CONSTRAINT outbound_webhook_deliveries_lease_has_token CHECK ((lease_token IS NULL) = (lease_until IS NULL)),
    CONSTRAINT outbound_webhook_deliveries_lease_while_due
        CHECK (lease_token IS NULL OR status IN ('PENDING', 'RETRYING'))
) PARTITION BY RANGE (event_id);
-- The dispatcher's claim walks this per endpoint; rows in flight, finished or failed are not in it.
CREATE INDEX outbound_webhook_deliveries_due ON apipay.outbound_webhook_deliveries (priority, endpoint_id, next_attempt_at)
    WHERE status IN ('PENDING', 'RETRYING') AND lease_until IS NULL;
-- Live leases per endpoint (the cap) and expired ones (the rescue).
CREATE INDEX outbound_webhook_deliveries_leased ON apipay.outbound_webhook_deliveries (endpoint_id, lease_until)
    WHERE lease_until IS NOT NULL;
CREATE INDEX outbound_webhook_deliveries_by_tenant ON apipay.outbound_webhook_deliveries (tenant_id, event_id, endpoint_id);
CREATE INDEX outbound_webhook_deliveries_by_endpoint ON apipay.outbound_webhook_deliveries (endpoint_id, event_id);
-- What failed, newest first, and the order in which a recovery walks. It costs nothing while deliveries succeed.
CREATE INDEX outbound_webhook_deliveries_failed ON apipay.outbound_webhook_deliveries (event_id, endpoint_id)
    WHERE status = 'FAILED';
-- What has gone wrong, as support asks for it: by state alone, of a tenant, of an endpoint, newest first. Without them a tenant of
-- millions with nothing that retries is read to its end to say so. They hold no row that was delivered at the first try, so they
-- cost nothing while deliveries succeed.
CREATE INDEX outbound_webhook_deliveries_troubled ON apipay.outbound_webhook_deliveries (status, event_id, endpoint_id)
    WHERE status IN ('RETRYING', 'FAILED');
CREATE INDEX outbound_webhook_deliveries_troubled_by_tenant ON apipay.outbound_webhook_deliveries (tenant_id, status, event_id, endpoint_id)
    WHERE status IN ('RETRYING', 'FAILED');
CREATE INDEX outbound_webhook_deliveries_troubled_by_endpoint ON apipay.outbound_webhook_deliveries (endpoint_id, status, event_id)
    WHERE status IN ('RETRYING', 'FAILED');
CREATE TABLE apipay.outbound_webhook_deliveries_default PARTITION OF apipay.outbound_webhook_deliveries DEFAULT;
CALL apipay.isolate('outbound_webhook_deliveries');
ALTER TABLE apipay.outbound_webhook_deliveries_default ENABLE ROW LEVEL SECURITY;
ALTER TABLE apipay.outbound_webhook_deliveries_default FORCE ROW LEVEL SECURITY;
GRANT SELECT, INSERT, UPDATE (status, priority, trigger, attempt_count, next_attempt_at, due_since, lease_token, lease_until,
    lost_leases, recovery_id, delivered_at, failed_at, failure_reason, updated_at)
    ON apipay.outbound_webhook_deliveries TO apipay_worker;
-- Only what the guarded retry of pkg/webhook changes.
GRANT SELECT, UPDATE (status, priority, trigger, next_attempt_at, due_since, failed_at, failure_reason, recovery_id, updated_at)
    ON apipay.outbound_webhook_deliveries TO apipay_app, apipay_admin;

-- One HTTP try. latency and phases are milliseconds.
CREATE TABLE apipay.outbound_webhook_attempts (
    event_id         uuid NOT NULL,
    delivery_id      uuid NOT NULL,
    id               uuid NOT NULL,
    endpoint_id      uuid NOT NULL,
    tenant_id        uuid NOT NULL,
    livemode         boolean NOT NULL,
    number           integer NOT NULL CHECK (number >= 1),
    trigger          text NOT NULL CHECK (trigger IN ('scheduled', 'manual', 'recovery')),
    outcome          text NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'superseded', 'lost')),
    started_at       timestamptz NOT NULL,
    latency_ms       integer CHECK (latency_ms >= 0),
    phases_ms        jsonb NOT NULL DEFAULT '{}',
    remote_ip        text,
    status_code      integer,
    error_class      text,
    response_excerpt text CHECK (octet_length(response_excerpt) <= 16384),
    created_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_id, delivery_id, id)
) PARTITION BY RANGE (event_id);
CREATE UNIQUE INDEX outbound_webhook_attempts_number ON apipay.outbound_webhook_attempts (event_id, delivery_id, number)
    WHERE outcome <> 'superseded';
CREATE TABLE apipay.outbound_webhook_attempts_default PARTITION OF apipay.outbound_webhook_attempts DEFAULT;
CALL apipay.isolate('outbound_webhook_attempts');
ALTER TABLE apipay.outbound_webhook_attempts_default ENABLE ROW LEVEL SECURITY;
ALTER TABLE apipay.outbound_webhook_attempts_default FORCE ROW LEVEL SECURITY;
GRANT SELECT, INSERT ON apipay.outbound_webhook_attempts TO apipay_worker;
GRANT SELECT ON apipay.outbound_webhook_attempts TO apipay_app, apipay_admin;

-- Records that can never be processed, with where they were and why. tenant_id is NULL where it could not be read.
CREATE TABLE apipay.quarantined_records (
    id                  uuid PRIMARY KEY,
    tenant_id           uuid,
    kafka_topic         text NOT NULL,
    kafka_partition     integer NOT NULL,
    kafka_offset        bigint NOT NULL,
    key                 bytea,
    value               bytea,
    headers             jsonb NOT NULL DEFAULT '[]',
    reason              text NOT NULL,
    detail              text,
    created_at          timestamptz NOT NULL DEFAULT now(),
    replay_requested_at timestamptz,
    -- When the dispatcher last tried; without replayed_at it was refused again, for the reason that stands here now.
    last_replay_at      timestamptz,
    replayed_at         timestamptz,
    UNIQUE (kafka_topic, kafka_partition, kafka_offset)
);
CREATE INDEX quarantined_records_by_created ON apipay.quarantined_records (created_at, id);
-- A tenant's own, for staff who are confined to it; so for recoveries.
CREATE INDEX quarantined_records_by_tenant ON apipay.quarantined_records (tenant_id, created_at, id);
CREATE INDEX quarantined_records_replay ON apipay.quarantined_records (replay_requested_at)
    WHERE replay_requested_at IS NOT NULL AND replayed_at IS NULL;
CALL apipay.isolate('quarantined_records', 'tenant_id', false);
GRANT SELECT, INSERT, UPDATE (replay_requested_at, last_replay_at, replayed_at, reason, detail) ON apipay.quarantined_records TO apipay_worker;
GRANT SELECT, UPDATE (replay_requested_at) ON apipay.quarantined_records TO apipay_admin;

-- A bulk resend. admin-api and payment-api ask; the dispatcher works through the cursor and may be killed
-- and resumed anywhere. tenant_id is NULL for one over several tenants.
CREATE TABLE apipay.recoveries (
    id            uuid PRIMARY KEY,
    tenant_id     uuid REFERENCES apipay.tenants (id),
    livemode      boolean,
    filter        jsonb NOT NULL,
    status        text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running', 'done', 'canceled')),
    matched       bigint,
    queued        bigint NOT NULL DEFAULT 0,
    cursor_event  uuid,
    cursor_endpoint uuid,
    requested_by  text NOT NULL,
    cancel_requested_at timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    finished_at   timestamptz,
    CONSTRAINT recoveries_finished_by_status CHECK ((status IN ('done', 'canceled')) = (finished_at IS NOT NULL))
);
CREATE INDEX recoveries_open ON apipay.recoveries (created_at) WHERE finished_at IS NULL;
CREATE INDEX recoveries_by_created ON apipay.recoveries (created_at, id);
CREATE INDEX recoveries_by_tenant ON apipay.recoveries (tenant_id, created_at, id);
CALL apipay.isolate('recoveries');
GRANT SELECT, INSERT ON apipay.recoveries TO apipay_app;
GRANT SELECT, INSERT, UPDATE (cancel_requested_at) ON apipay.recoveries TO apipay_admin;
GRANT SELECT, UPDATE (status, matched, queued, cursor_event, cursor_endpoint, finished_at) ON apipay.recoveries TO apipay_worker;

-- +goose Down
DROP TABLE apipay.recoveries, apipay.quarantined_records, apipay.outbound_webhook_attempts,
    apipay.outbound_webhook_deliveries, apipay.webhook_events, apipay.webhook_endpoint_health,
    apipay.webhook_endpoint_states, apipay.webhook_endpoint_secrets, apipay.webhook_endpoints;
