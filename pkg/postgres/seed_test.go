package postgres_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

// tenant is one tenant with one row in every table.
type tenant struct {
	id, intent, refund, attempt, endpoint, event, apiKey uuid.UUID
	livemode                                             bool
}

// seed makes a tenant with one row in every table that belongs to tenants, as the owner.
func seed(ctx context.Context, t *testing.T, owner *pgxpool.Pool, livemode bool) tenant {
	t.Helper()
	s := tenant{id: id.New(), intent: id.New(), refund: id.New(), attempt: id.New(), endpoint: id.New(), event: id.New(), apiKey: id.New(), livemode: livemode}
	run := func(sql string, args ...any) {
		t.Helper()
		_, err := owner.Exec(ctx, sql, args...)
		require.NoError(t, err, sql)
	}
	run(`INSERT INTO apipay.tenants (id, name) VALUES ($1, 'seed')`, s.id)
	run(`INSERT INTO apipay.api_keys (id, tenant_id, livemode, hash, last4, scopes)
	     VALUES ($1, $2, $3, sha256($1::uuid::text::bytea), 'abcd', '{events:read}')`, s.apiKey, s.id, livemode)
	run(`INSERT INTO apipay.payment_intents (id, tenant_id, livemode, amount, currency, status, payment_method, latest_attempt, amount_refund_pending)
	     VALUES ($1, $2, $3, 100, 'EUR', 'succeeded', 'pm_card_visa', $4, 10)`, s.intent, s.id, livemode, s.attempt)
	run(`INSERT INTO apipay.refunds (id, tenant_id, livemode, payment_intent_id, amount, currency, status)
	     VALUES ($1, $2, $3, $4, 10, 'EUR', 'pending')`, s.refund, s.id, livemode, s.intent)
	run(`INSERT INTO apipay.payment_attempts (id, tenant_id, livemode, payment_intent_id, kind, number, status, amount, currency, payment_method, gateway, prior_status, lease_until, finished_at)
	     VALUES ($1, $2, $3, $4, 'charge', 1, 'succeeded', 100, 'EUR', 'pm_card_visa', 'sandbox', 'requires_confirmation', now(), now())`,
		s.attempt, s.id, livemode, s.intent)
	run(`INSERT INTO apipay.idempotency_keys (tenant_id, livemode, key, fingerprint, method, path, first_request_id, recovery_point, expires_at)
	     VALUES ($1, $2, 'k', sha256('x'), 'POST', '/v1/payment-intents', 'req_x', 'claimed', now() + interval '1 day')`, s.id, livemode)
	run(`INSERT INTO apipay.sandbox_charges (attempt_id, tenant_id, livemode, kind, status, amount, currency, payment_method)
	     VALUES ($1, $2, $3, 'charge', 'succeeded', 100, 'EUR', 'pm_card_visa')`, s.attempt, s.id, livemode)
	run(`INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload)
	     VALUES ($1, $2, $3, 'apipay.outbound-webhooks.v1', 1, 'ping', '{}')`, s.event, s.id, livemode)
	run(`INSERT INTO apipay.audit_log (id, tenant_id, livemode, actor, role, action, target)
	     VALUES ($1, $2, $3, 'seed', 'system', 'seed.run', 'x')`, id.New(), s.id, livemode)
	run(`INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events)
	     VALUES ($1, $2, $3, 'https://example.com/', '{*}')`, s.endpoint, s.id, livemode)
	run(`INSERT INTO apipay.webhook_endpoint_secrets (id, tenant_id, livemode, endpoint_id, ciphertext, key_id)
	     VALUES ($1, $2, $3, $4, 'x', 1)`, id.New(), s.id, livemode, s.endpoint)
	run(`INSERT INTO apipay.webhook_endpoint_states (endpoint_id, tenant_id, livemode) VALUES ($1, $2, $3)`, s.endpoint, s.id, livemode)
	run(`INSERT INTO apipay.webhook_endpoint_health (endpoint_id, hour, tenant_id, livemode) VALUES ($1, date_trunc('hour', now()), $2, $3)`, s.endpoint, s.id, livemode)
	run(`INSERT INTO apipay.webhook_events (event_id, tenant_id, livemode, type, body, kafka_topic, kafka_partition, kafka_offset, event_created_at)
	     VALUES ($1, $2, $3, 'ping', '{}', 't', 0, 0, now())`, s.event, s.id, livemode)
	run(`INSERT INTO apipay.outbound_webhook_deliveries (event_id, endpoint_id, id, tenant_id, livemode, event_type, next_attempt_at)
	     VALUES ($1, $2, apipay.uuid7_beside($1), $3, $4, 'ping', now())`, s.event, s.endpoint, s.id, livemode)
	run(`INSERT INTO apipay.outbound_webhook_attempts (event_id, delivery_id, id, endpoint_id, tenant_id, livemode, number, trigger, outcome, started_at)
	     SELECT event_id, id, apipay.uuid7_beside(event_id), endpoint_id, tenant_id, livemode, 1, 'scheduled', 'failed', now()
	     FROM apipay.outbound_webhook_deliveries WHERE event_id = $1`, s.event)
	run(`INSERT INTO apipay.quarantined_records (id, tenant_id, kafka_topic, kafka_partition, kafka_offset, reason)
	     VALUES ($1, $2, $3, 0, 0, 'not_json')`, id.New(), s.id, s.id.String())
	run(`INSERT INTO apipay.recoveries (id, tenant_id, livemode, filter, requested_by) VALUES ($1, $2, $3, '{}', 'seed')`, id.New(), s.id, livemode)
	return s
}
