package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/proto/events"
)

const clients = 16

// shop is one tenant under load: its client, its endpoint and the secret that signs to it.
type shop struct {
	*client
	path   string
	secret string
}

func (h *hub) shops(t *testing.T, rx *receiver, n int) []shop {
	t.Helper()
	staff := h.staff(t)
	shops := make([]shop, n)
	for i := range shops {
		path := fmt.Sprintf("/shop/%d", i)
		merchant := h.merchant(t, staff, fmt.Sprintf("Shop %d", i))
		endpoint := merchant.must(t, http.StatusCreated, "POST", "/v1/webhook-endpoints", "",
			object{"url": rx.url + path, "enabled_events": []string{"*"}})
		shops[i] = shop{client: merchant, path: path, secret: endpoint.text("secret")}
	}
	return shops
}

// buy creates, confirms and refunds one intent, insisting with the same keys until each answer is final.
func (s shop) buy(ctx context.Context) error {
	key := uuid.NewString()
	status, intent, err := s.insist(ctx, "POST", "/v1/payment-intents", key+"-create",
		object{"amount": 1000, "currency": "EUR", "payment_method": "pm_card_visa", "metadata": object{"order": key}})
	if err != nil || status != http.StatusCreated {
		return fmt.Errorf("creating: %d %v: %w", status, intent, err)
	}
	path := "/v1/payment-intents/" + intent.text("id")
	status, answer, err := s.insist(ctx, "POST", path+"/confirm", key+"-confirm", nil)
	if err != nil || status != http.StatusOK || answer.text("status") != "succeeded" {
		return fmt.Errorf("confirming: %d %v: %w", status, answer, err)
	}
	status, answer, err = s.insist(ctx, "POST", path+"/refunds", key+"-refund", object{"amount": 400})
	if err != nil || status != http.StatusCreated || answer.text("status") != "succeeded" {
		return fmt.Errorf("refunding: %d %v: %w", status, answer, err)
	}
	return nil
}

// load lets 16 clients at once buy n times, spread over the shops.
func load(ctx context.Context, shops []shop, n int) error {
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, clients)
	for range clients {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := shops[int(i)%len(shops)].buy(ctx); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

const (
	unpublished = `SELECT count(*) FROM apipay.outbox_events WHERE published_at IS NULL`
	undelivered = `SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status <> 'DELIVERED'`
	// Each merchant has one endpoint for everything, so each event makes one delivery.
	undone = `
		SELECT (SELECT count(*) FROM apipay.outbox_events WHERE topic = 'apipay.outbound-webhooks.v1')
		     - (SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'DELIVERED')`
	// Each purchase tells its merchant of: created, succeeded, refund created, refund succeeded.
	perPurchase = 4
)

// requireSettled holds the rows against what n purchases must leave behind: every intent charged once,
// refunded once, told completely, and nothing left undone.
func (h *hub) requireSettled(t *testing.T, n int) {
	t.Helper()
	require.Equal(t, n, h.count(t, `SELECT count(*) FROM apipay.payment_intents WHERE status = 'succeeded' AND amount_refunded = 400 AND amount_refund_pending = 0`))
	require.Equal(t, n, h.count(t, `SELECT count(*) FROM apipay.payment_intents`))
	require.Equal(t, n, h.count(t, `SELECT count(*) FROM apipay.refunds WHERE status = 'succeeded'`))
	// The gateway's own ledger: one charge and one refund per intent, whatever the attempts.
	const ledger = `
		SELECT count(*) FROM (
		    SELECT a.payment_intent_id, count(*) FILTER (WHERE c.kind = 'charge') AS charges, sum(c.amount) FILTER (WHERE c.kind = 'refund') AS refunded
		    FROM apipay.sandbox_charges c JOIN apipay.payment_attempts a ON a.id = c.attempt_id
		    WHERE c.status = 'succeeded' GROUP BY a.payment_intent_id) per_intent
		WHERE charges = 1 AND refunded = 400`
	require.Equal(t, n, h.count(t, ledger))
	require.Zero(t, h.count(t, `SELECT count(*) FROM apipay.sandbox_charges c WHERE status = 'succeeded' AND NOT EXISTS (SELECT FROM apipay.payment_attempts a WHERE a.id = c.attempt_id)`))
	require.Zero(t, h.count(t, `SELECT count(*) FROM apipay.payment_attempts WHERE status IN ('started', 'unknown')`))
	require.Zero(t, h.count(t, `SELECT count(*) FROM apipay.idempotency_keys WHERE recovery_point <> 'finished'`))
	require.Zero(t, h.count(t, `SELECT count(*) FROM apipay.outbox_events WHERE parked_at IS NOT NULL`))
	require.Zero(t, h.count(t, `SELECT count(*) FROM apipay.quarantined_records`))
	require.Zero(t, h.count(t, `SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE lease_token IS NOT NULL`))
}

// TestLoad: 2,000 intents of 20 tenants, created, confirmed and refunded by 16 clients at once, with three
// relays and two dispatchers: every event on the topic exactly once and in order, every delivery DELIVERED
// by exactly one POST, every signature right over the raw body.
func TestLoad(t *testing.T) {
	const purchases = 2000
	h := start(t, "RELAYS=3", "DISPATCHERS=2")
	rx := listen(t)
	shops := h.shops(t, rx, 20)
	begin := time.Now()
	require.NoError(t, load(t.Context(), shops, purchases))
	t.Logf("%d purchases in %s", purchases, time.Since(begin).Round(time.Millisecond))
	h.eventually(t, 30*time.Second, 0, unpublished)
	h.eventually(t, 60*time.Second, 0, undone)
	t.Logf("all delivered %s after the first request", time.Since(begin).Round(time.Millisecond))
	require.Zero(t, h.count(t, undelivered))
	h.requireSettled(t, purchases)

	for _, topic := range events.Topics() {
		records := h.readTopic(t, topic)
		require.Zero(t, requireOrder(t, records), "duplicates on %s", topic)
		require.Equal(t, h.count(t, `SELECT count(*) FROM apipay.outbox_events WHERE topic = $1`, topic), len(records), topic)
		for _, r := range records {
			// Row, record and webhook carry the same bytes.
			if topic == events.TopicOutboundWebhooks {
				continue
			}
			require.NotEmpty(t, r.key)
		}
	}
	bodies := map[string]string{}
	for _, r := range h.readTopic(t, events.TopicOutboundWebhooks) {
		bodies[r.id] = string(r.value)
	}
	total := 0
	for _, s := range shops {
		for id, hooks := range rx.at(s.path) {
			require.Len(t, hooks, 1, "POSTs of %s", id)
			require.Equal(t, bodies[id], string(hooks[0].body), "body of %s", id)
			verify(t, hooks[0], s.secret)
			total++
		}
	}
	require.Equal(t, purchases*perPurchase, total)
}
