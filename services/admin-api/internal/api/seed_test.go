package api

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

func (b *testBundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.owner.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}

func (b *testBundle) endpoint(t *testing.T, tenant uuid.UUID) uuid.UUID {
	t.Helper()
	endpoint := id.New()
	b.exec(t, `INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events, created_at)
		VALUES ($1, $2, false, 'https://example.com/a%20b_c?x=1', '{*}', now() - interval '1 hour')`, endpoint, tenant)
	return endpoint
}

// event is a webhook event that the dispatcher received.
func (b *testBundle) event(t *testing.T, tenant uuid.UUID, matched int) uuid.UUID {
	t.Helper()
	event := id.New()
	b.exec(t, `INSERT INTO apipay.webhook_events (event_id, tenant_id, livemode, type, body, kafka_topic, kafka_partition, kafka_offset,
		    endpoints_matched, event_created_at)
		VALUES ($1, $2, false, 'payment_intent.succeeded', '{}', 'apipay.outbound-webhooks.v1', 3, 42, $3, date_trunc('second', now()))`,
		event, tenant, matched)
	return event
}

// delivery makes a delivery; set is what SET of an UPDATE takes.
func (b *testBundle) delivery(t *testing.T, tenant, endpoint uuid.UUID, set string) string {
	t.Helper()
	event := b.event(t, tenant, 1)
	var delivery uuid.UUID
	require.NoError(t, b.owner.QueryRow(t.Context(), `
		INSERT INTO apipay.outbound_webhook_deliveries (event_id, endpoint_id, id, tenant_id, livemode, event_type, next_attempt_at)
		VALUES ($1, $2, apipay.uuid7_beside($1), $3, false, 'payment_intent.succeeded', now()) RETURNING id`,
		event, endpoint, tenant).Scan(&delivery))
	if set != "" {
		b.exec(t, `UPDATE apipay.outbound_webhook_deliveries SET `+set+` WHERE event_id = $1`, event)
	}
	return id.Format(id.Delivery, delivery)
}

const (
	failed    = `status = 'FAILED', next_attempt_at = NULL, failed_at = now(), failure_reason = 'attempts_exhausted', attempt_count = 6`
	delivered = `status = 'DELIVERED', next_attempt_at = NULL, delivered_at = now(), attempt_count = 1`
	retrying  = `status = 'RETRYING', next_attempt_at = now() + interval '1 hour', attempt_count = 2`
	inFlight  = `lease_token = gen_random_uuid(), lease_until = now() + interval '1 minute'`
)

// attempt records one try of a delivery.
func (b *testBundle) attempt(t *testing.T, delivery string, number int, outcome, excerpt string) {
	t.Helper()
	u, err := id.Parse(id.Delivery, delivery)
	require.NoError(t, err)
	b.exec(t, `INSERT INTO apipay.outbound_webhook_attempts (event_id, delivery_id, id, endpoint_id, tenant_id, livemode, number, trigger,
		    outcome, started_at, latency_ms, phases_ms, remote_ip, status_code, error_class, response_excerpt)
		SELECT event_id, id, apipay.uuid7_beside(event_id), endpoint_id, tenant_id, livemode, $2, 'scheduled', $3, now(), 12,
		    '{"dns": 1, "connect": 2}', '203.0.113.7', 500, 'http_5xx', $4
		FROM apipay.outbound_webhook_deliveries WHERE id = $1`, u, number, outcome, excerpt)
}

// outboxEvent makes an outbox row; set is what SET of an UPDATE takes.
func (b *testBundle) outboxEvent(t *testing.T, tenant uuid.UUID, set string) uuid.UUID {
	t.Helper()
	event := id.New()
	b.exec(t, `INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload)
		VALUES ($1, $2, false, 'apipay.outbound-webhooks.v1', 7, 'payment_intent.succeeded', '{"secret-payload":1}')`, event, tenant)
	if set != "" {
		b.exec(t, `UPDATE apipay.outbox_events SET `+set+` WHERE id = $1`, event)
	}
	return event
}

const parked = `parked_at = now(), parked_reason = 'message too large'`

// payment makes a processing intent with one open charge attempt; set is what SET of an UPDATE of the attempt takes.
func (b *testBundle) payment(t *testing.T, tenant uuid.UUID, reference, set string) (intent, attempt uuid.UUID) {
	t.Helper()
	intent, attempt = id.New(), id.New()
	b.exec(t, `INSERT INTO apipay.payment_intents (id, tenant_id, livemode, amount, currency, status, payment_method, latest_attempt,
		    merchant_reference, metadata)
		VALUES ($1, $2, false, 1000, 'EUR', 'processing', 'pm_card_visa', $3, $4, '{"order": "7"}')`, intent, tenant, attempt, reference)
	b.exec(t, `INSERT INTO apipay.payment_attempts (id, tenant_id, livemode, payment_intent_id, kind, number, status, amount, currency,
		    payment_method, gateway, prior_status, prior_payment_method, lease_until, next_check_at, idempotency_key)
		VALUES ($1, $2, false, $3, 'charge', 1, 'unknown', 1000, 'EUR', 'pm_card_visa', 'sandbox', 'requires_confirmation', 'pm_card_visa',
		    now() - interval '1 hour', now() + interval '1 minute', 'merchants-own-key')`, attempt, tenant, intent)
	if set != "" {
		b.exec(t, `UPDATE apipay.payment_attempts SET `+set+` WHERE id = $1`, attempt)
	}
	return intent, attempt
}

// quarantined makes a record that could not be processed; tenant Nil is one whose tenant could not be read.
func (b *testBundle) quarantined(t *testing.T, tenant uuid.UUID) uuid.UUID {
	t.Helper()
	record := id.New()
	owner := uuid.NullUUID{UUID: tenant, Valid: tenant != uuid.Nil}
	b.exec(t, `INSERT INTO apipay.quarantined_records (id, tenant_id, kafka_topic, kafka_partition, kafka_offset, key, value, reason)
		SELECT $1, $2, 'apipay.outbound-webhooks.v1', 0, coalesce(max(kafka_offset) + 1, 0), 'k', 'secret-payload', 'not_json'
		FROM apipay.quarantined_records`, record, owner)
	return record
}
