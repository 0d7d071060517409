-- +goose Up

CREATE TABLE apipay.payment_intents (
    id                    uuid PRIMARY KEY,
    tenant_id             uuid NOT NULL REFERENCES apipay.tenants (id),
    livemode              boolean NOT NULL,
    amount                bigint NOT NULL CHECK (amount BETWEEN 1 AND 99999999),
    amount_refunded       bigint NOT NULL DEFAULT 0 CHECK (amount_refunded >= 0),
    -- The sum of pending refunds: it counts against the remainder until they succeed or fail.
    amount_refund_pending bigint NOT NULL DEFAULT 0 CHECK (amount_refund_pending >= 0),
    currency              text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    status                text NOT NULL CHECK (status IN
                              ('requires_payment_method', 'requires_confirmation', 'processing', 'succeeded', 'canceled')),
    description           text,
    metadata              jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    merchant_reference    text,
    payment_method        text,
    last_payment_error    jsonb,
    latest_attempt        uuid,
    -- The charges tried so far, and those of them that were declined: counted here, under the row's lock.
    charge_attempts       integer NOT NULL DEFAULT 0,
    declined_attempts     integer NOT NULL DEFAULT 0,
    version               bigint NOT NULL DEFAULT 1 CHECK (version >= 1),
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, livemode, id),
    CONSTRAINT payment_intents_refunds_within_amount CHECK (amount_refunded + amount_refund_pending <= amount),
    CONSTRAINT payment_intents_refunds_only_after_success
        CHECK (status = 'succeeded' OR amount_refunded + amount_refund_pending = 0),
    CONSTRAINT payment_intents_payment_method_by_status CHECK (CASE status
        WHEN 'requires_payment_method' THEN payment_method IS NULL
        WHEN 'canceled' THEN true
        ELSE payment_method IS NOT NULL END),
    CONSTRAINT payment_intents_declined_attempts_are_charges CHECK (declined_attempts BETWEEN 0 AND charge_attempts),
    CONSTRAINT payment_intents_attempt_by_status
        CHECK (status NOT IN ('processing', 'succeeded') OR latest_attempt IS NOT NULL)
);
-- Partial, so that it is as large as what it holds and never chosen to find an id: over a table that was not analyzed yet, a
-- small index on (tenant_id, livemode) looks cheaper than the primary key, and reads every row of the tenant.
CREATE UNIQUE INDEX payment_intents_merchant_reference_key ON apipay.payment_intents (tenant_id, livemode, merchant_reference)
    WHERE merchant_reference IS NOT NULL;
-- The merchant's list, newest first, by keyset.
CREATE INDEX payment_intents_by_created ON apipay.payment_intents (tenant_id, livemode, created_at, id);
-- The admin list over all tenants. Rows come at its end, and no update touches it.
CREATE INDEX payment_intents_by_time ON apipay.payment_intents (created_at, id);
-- Support looks for a merchant's reference without knowing the tenant.
CREATE INDEX payment_intents_by_reference ON apipay.payment_intents (merchant_reference, id) WHERE merchant_reference IS NOT NULL;
CALL apipay.isolate('payment_intents');
GRANT SELECT, INSERT ON apipay.payment_intents TO apipay_app;
GRANT UPDATE (status, amount_refunded, amount_refund_pending, payment_method, last_payment_error, latest_attempt,
    charge_attempts, declined_attempts, version, updated_at) ON apipay.payment_intents TO apipay_app;
GRANT SELECT ON apipay.payment_intents TO apipay_admin;

CREATE TABLE apipay.refunds (
    id                uuid PRIMARY KEY,
    tenant_id         uuid NOT NULL,
    livemode          boolean NOT NULL,
    payment_intent_id uuid NOT NULL,
    amount            bigint NOT NULL CHECK (amount BETWEEN 1 AND 99999999),
    currency          text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    status            text NOT NULL CHECK (status IN ('pending', 'succeeded', 'failed')),
    failure_reason    text,
    reason            text,
    metadata          jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    -- refund.created has been emitted: merchants know of this refund.
    announced         boolean NOT NULL DEFAULT false,
    -- 0 until the first event about it.
    version           bigint NOT NULL DEFAULT 0 CHECK (version >= 0),
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, livemode, id),
    FOREIGN KEY (tenant_id, livemode, payment_intent_id) REFERENCES apipay.payment_intents (tenant_id, livemode, id),
    CONSTRAINT refunds_failure_reason_by_status CHECK ((status = 'failed') = (failure_reason IS NOT NULL))
);
CREATE INDEX refunds_by_intent ON apipay.refunds (tenant_id, livemode, payment_intent_id, created_at, id);
CALL apipay.isolate('refunds');
GRANT SELECT, INSERT ON apipay.refunds TO apipay_app;
GRANT UPDATE (status, failure_reason, announced, version, updated_at) ON apipay.refunds TO apipay_app;
GRANT SELECT ON apipay.refunds TO apipay_admin;

-- One call to a gateway: a charge of an intent or a refund of it. Its id is the gateway's idempotency key.
CREATE TABLE apipay.payment_attempts (
    id                   uuid PRIMARY KEY,
    tenant_id            uuid NOT NULL,
    livemode             boolean NOT NULL,
    payment_intent_id    uuid NOT NULL,
    kind                 text NOT NULL CHECK (kind IN ('charge', 'refund')),
    refund_id            uuid,
    -- For a refund: the attempt that charged.
    charge_attempt_id    uuid,
    number               integer NOT NULL CHECK (number >= 1),
    status               text NOT NULL CHECK (status IN ('started', 'succeeded', 'declined', 'not_executed', 'unknown')),
    amount               bigint NOT NULL CHECK (amount BETWEEN 1 AND 99999999),
    currency             text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    payment_method       text NOT NULL,
    gateway              text NOT NULL,
    gateway_reference    text,
    decline_code         text,
    failure_message      text,
    -- What the intent returns to when the attempt turns out not executed.
    prior_status         text,
    prior_payment_method text,
    -- The request that waits for the outcome.
    idempotency_key      text,
    request_id           text,
    -- payment_intent.processing has been emitted for this attempt.
    announced            boolean NOT NULL DEFAULT false,
    -- The calling process owns the attempt until then; afterwards the reconciler may take it.
    lease_until          timestamptz NOT NULL,
    next_check_at        timestamptz,
    check_count          integer NOT NULL DEFAULT 0 CHECK (check_count >= 0),
    -- The reconciler's own lease of the row.
    checker              uuid,
    checker_until        timestamptz,
    -- A resolution by hand, written by admin-api; the reconciler acts on it.
    resolution           text CHECK (resolution IN ('succeeded', 'declined', 'not_executed')),
    resolution_reason    text,
    resolved_by          text,
    resolved_at          timestamptz,
    version              bigint NOT NULL DEFAULT 1 CHECK (version >= 1),
    created_at           timestamptz NOT NULL DEFAULT now(),
    finished_at          timestamptz,
    UNIQUE (tenant_id, livemode, id),
    FOREIGN KEY (tenant_id, livemode, payment_intent_id) REFERENCES apipay.payment_intents (tenant_id, livemode, id),
    FOREIGN KEY (tenant_id, livemode, refund_id) REFERENCES apipay.refunds (tenant_id, livemode, id),
    FOREIGN KEY (tenant_id, livemode, charge_attempt_id) REFERENCES apipay.payment_attempts (tenant_id, livemode, id),
    CONSTRAINT payment_attempts_refund_by_kind
        CHECK ((kind = 'refund') = (refund_id IS NOT NULL) AND (kind = 'refund') = (charge_attempt_id IS NOT NULL)),
    CONSTRAINT payment_attempts_open_or_finished
        CHECK ((status IN ('started', 'unknown')) = (finished_at IS NULL)
           AND (status IN ('started', 'unknown')) = (next_check_at IS NOT NULL)),
    CONSTRAINT payment_attempts_prior_by_kind CHECK ((kind = 'charge') = (prior_status IS NOT NULL)),
    CONSTRAINT payment_attempts_resolution_complete
        CHECK ((resolution IS NULL) = (resolved_at IS NULL) AND (resolution IS NULL) = (resolved_by IS NULL))
);
-- Whatever the code does: one open charge, and one successful charge, per intent; the same per refund.
CREATE UNIQUE INDEX payment_attempts_one_open_charge ON apipay.payment_attempts (payment_intent_id)
    WHERE kind = 'charge' AND status IN ('started', 'unknown');
CREATE UNIQUE INDEX payment_attempts_one_successful_charge ON apipay.payment_attempts (payment_intent_id)
    WHERE kind = 'charge' AND status = 'succeeded';
CREATE UNIQUE INDEX payment_attempts_one_open_refund ON apipay.payment_attempts (refund_id)
    WHERE kind = 'refund' AND status IN ('started', 'unknown');
CREATE UNIQUE INDEX payment_attempts_one_successful_refund ON apipay.payment_attempts (refund_id)
    WHERE kind = 'refund' AND status = 'succeeded';
CREATE INDEX payment_attempts_by_intent ON apipay.payment_attempts (payment_intent_id);
-- The admin list, newest first, by keyset.
CREATE INDEX payment_attempts_by_created ON apipay.payment_attempts (created_at, id);
-- The reconciler's work list.
CREATE INDEX payment_attempts_due ON apipay.payment_attempts (next_check_at) WHERE status IN ('started', 'unknown');
-- The reaper must not drop a key whose outcome is still open.
CREATE INDEX payment_attempts_open_by_key ON apipay.payment_attempts (tenant_id, livemode, idempotency_key)
    WHERE status IN ('started', 'unknown');
CALL apipay.isolate('payment_attempts');
GRANT SELECT, INSERT ON apipay.payment_attempts TO apipay_app;
GRANT UPDATE (status, gateway_reference, decline_code, failure_message, announced, lease_until, next_check_at, check_count,
    checker, checker_until, version, finished_at) ON apipay.payment_attempts TO apipay_app;
GRANT SELECT, UPDATE (resolution, resolution_reason, resolved_by, resolved_at, next_check_at)
    ON apipay.payment_attempts TO apipay_admin;

-- What a merchant's Idempotency-Key stands for. locked_until (the lease of the running request) and
-- expires_at (the life of the record) are different clocks.
CREATE TABLE apipay.idempotency_keys (
    tenant_id         uuid NOT NULL REFERENCES apipay.tenants (id),
    livemode          boolean NOT NULL,
    key               text NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    fingerprint       bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    method            text NOT NULL,
    path              text NOT NULL,
    first_request_id  text NOT NULL,
    -- Where a request that takes over resumes: claimed, created (the intent exists), attempted, finished.
    recovery_point    text NOT NULL CHECK (recovery_point IN ('claimed', 'created', 'attempted', 'finished')),
    payment_intent_id uuid,
    refund_id         uuid,
    attempt_id        uuid,
    owner             uuid,
    locked_until      timestamptz,
    response_status   integer CHECK (response_status BETWEEN 200 AND 599),
    response_headers  jsonb,
    response_body     bytea,
    created_at        timestamptz NOT NULL DEFAULT now(),
    expires_at        timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, livemode, key),
    CONSTRAINT idempotency_keys_finished_has_response CHECK (
        (recovery_point = 'finished') = (response_status IS NOT NULL)
        AND (recovery_point = 'finished') = (response_body IS NOT NULL)),
    CONSTRAINT idempotency_keys_lock_has_owner CHECK ((owner IS NULL) = (locked_until IS NULL))
);
CREATE INDEX idempotency_keys_expiring ON apipay.idempotency_keys (expires_at);
CALL apipay.isolate('idempotency_keys');
GRANT SELECT, INSERT, DELETE ON apipay.idempotency_keys TO apipay_app;
GRANT UPDATE (recovery_point, payment_intent_id, refund_id, attempt_id, owner, locked_until,
    response_status, response_headers, response_body, expires_at) ON apipay.idempotency_keys TO apipay_app;

-- The sandbox gateway's own ledger, written in transactions of its own as a remote gateway would. A row
-- with status closed refuses its id for ever.
CREATE TABLE apipay.sandbox_charges (
    attempt_id     uuid PRIMARY KEY,
    tenant_id      uuid NOT NULL,
    livemode       boolean NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('charge', 'refund')),
    status         text NOT NULL CHECK (status IN ('succeeded', 'declined', 'pending', 'closed')),
    -- What a look-up of a pending row makes of it, and from when.
    settles_to     text CHECK (settles_to IN ('succeeded', 'declined')),
    amount         bigint NOT NULL CHECK (amount >= 0),
    currency       text NOT NULL,
    payment_method text NOT NULL,
    charge_id      uuid,
    decline_code   text,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now()
);
-- What was refunded of a charge.
CREATE INDEX sandbox_charges_by_charge ON apipay.sandbox_charges (charge_id) WHERE charge_id IS NOT NULL;
CALL apipay.isolate('sandbox_charges');
GRANT SELECT, INSERT, UPDATE (status, settles_to, decline_code, updated_at) ON apipay.sandbox_charges TO apipay_app;

-- Work lists that cross tenants, for payment-api's background loops. They answer ids only; each item is
-- then handled in a transaction of its own tenant.
-- +goose StatementBegin
CREATE FUNCTION apipay.due_payment_attempts(max_rows integer)
RETURNS TABLE (tenant_id uuid, livemode boolean, id uuid)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT a.tenant_id, a.livemode, a.id
    FROM apipay.payment_attempts a
    WHERE a.status IN ('started', 'unknown')
      AND a.next_check_at <= now()
      AND (a.checker_until IS NULL OR a.checker_until <= now())
    ORDER BY a.next_check_at
    LIMIT max_rows;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION apipay.expired_idempotency_keys(max_rows integer)
RETURNS TABLE (tenant_id uuid, livemode boolean, key text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT k.tenant_id, k.livemode, k.key
    FROM apipay.idempotency_keys k
    WHERE k.expires_at <= now()
      AND (k.locked_until IS NULL OR k.locked_until <= now())
      AND NOT EXISTS (
          SELECT FROM apipay.payment_attempts a
          WHERE a.tenant_id = k.tenant_id AND a.livemode = k.livemode AND a.idempotency_key = k.key
            AND a.status IN ('started', 'unknown'))
    ORDER BY k.expires_at
    LIMIT max_rows;
END;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION apipay.due_payment_attempts(integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION apipay.expired_idempotency_keys(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION apipay.due_payment_attempts(integer) TO apipay_app;
GRANT EXECUTE ON FUNCTION apipay.expired_idempotency_keys(integer) TO apipay_app;

-- +goose Down
DROP FUNCTION apipay.expired_idempotency_keys(integer);
DROP FUNCTION apipay.due_payment_attempts(integer);
DROP TABLE apipay.sandbox_charges, apipay.idempotency_keys, apipay.payment_attempts, apipay.refunds, apipay.payment_intents;
