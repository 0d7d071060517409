package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/proto/events"
)

// TestKill: kill -9 of each service once under load, each started again: nothing lost, no charge twice, the
// same ids; afterwards no row is left undone.
func TestKill(t *testing.T) {
	const purchases = 400
	h := start(t, "RELAYS=2", "DISPATCHERS=2", "PAYMENT_APIS=2",
		// Short clocks, so that what a dead process held is free again within the test.
		"APIPAY_GATEWAY_TIMEOUT=1s", "APIPAY_IDEMPOTENCY_LEASE=3s", "APIPAY_GATEWAY_VISIBILITY_DELAY=1s",
		"APIPAY_WEBHOOK_TIMEOUT=2s", "APIPAY_WEBHOOK_LEASE=22s", "APIPAY_WEBHOOK_RETRY_SCHEDULE=1s,1s,1s,1s,1s")
	rx := listen(t)
	shops := h.shops(t, rx, 8)
	done := make(chan error, 1)
	go func() { done <- load(t.Context(), shops, purchases) }()
	kills := []string{"payment-api/1", "outbox-relay/1", "webhook-dispatcher/1", "admin-api/1", "payment-api/2", "outbox-relay/2", "webhook-dispatcher/2"}
	for i, name := range kills {
		// At a point of progress, not of time.
		require.Eventually(t, func() bool {
			return h.count(t, `SELECT count(*) FROM apipay.payment_intents`) >= (i+1)*purchases/(len(kills)+2)
		}, 60*time.Second, 5*time.Millisecond, name)
		h.devstack(t, "kill", name)
		h.devstack(t, "start", name)
	}
	require.NoError(t, <-done)
	h.eventually(t, 30*time.Second, 0, `SELECT count(*) FROM apipay.payment_attempts WHERE status IN ('started', 'unknown')`)
	h.eventually(t, 30*time.Second, 0, unpublished)
	// What a killed dispatcher had in flight is free again when its lease ends.
	h.travel(t, 22*time.Second)
	h.eventually(t, 60*time.Second, 0, undone)
	require.Zero(t, h.count(t, undelivered))
	h.requireSettled(t, purchases)
	for _, topic := range events.Topics() {
		records := h.readTopic(t, topic)
		t.Logf("%s: %d records, %d duplicates", topic, len(records), requireOrder(t, records))
		ids := map[string]bool{}
		for _, r := range records {
			ids[r.id] = true
		}
		require.Len(t, ids, h.count(t, `SELECT count(*) FROM apipay.outbox_events WHERE topic = $1`, topic), topic)
	}
	total, again := 0, 0
	for _, s := range shops {
		for _, hooks := range rx.at(s.path) {
			total++
			again += len(hooks) - 1
			for _, repeated := range hooks {
				require.Equal(t, string(hooks[0].body), string(repeated.body))
				verify(t, repeated, s.secret)
			}
		}
	}
	// A purchase whose attempt died with its process tells more: that it is processing, that it failed.
	require.GreaterOrEqual(t, total, purchases*perPurchase)
	require.Equal(t, h.count(t, `SELECT count(*) FROM apipay.outbox_events WHERE topic = $1`, events.TopicOutboundWebhooks), total)
	// At most what was in flight at each kill of a dispatcher: the cap per endpoint and replica.
	require.LessOrEqual(t, again, 2*4*len(shops))
	t.Logf("%d webhooks, %d POSTs repeated", total, again)
}
