package dispatch

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/webhook"
)

// click is a retry by hand, and reports whether it was accepted.
func (b *testBundle) click(deliveryID uuid.UUID) (accepted bool) {
	tx, err := b.owner.Begin(b.t.Context())
	if err != nil {
		return false
	}
	defer func() { _ = tx.Rollback(b.t.Context()) }() // after Commit it does nothing
	if _, err = webhook.RequestRetry(b.t.Context(), tx, webhook.DeliveryRef{ID: deliveryID}, false); err != nil {
		return false
	}
	return tx.Commit(b.t.Context()) == nil
}

// B98, E1: a retry by hand around the moment of the scheduled one: one POST, and the schedule goes on from its number.
func TestRetry_ByHandAndByScheduleTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var answer atomic.Int64
	answer.Store(http.StatusInternalServerError)
	rx := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		<-time.After(20 * time.Millisecond)
		w.WriteHeader(int(answer.Load()))
	})
	endpointID, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	b.run(b.dispatcher())
	for range 8 {
		answer.Store(http.StatusInternalServerError)
		base := len(rx.got())
		eventID := b.publish(d, succeeded)
		b.waitFor(eventID, endpointID, "RETRYING", 1)
		b.exec(`UPDATE apipay.outbound_webhook_deliveries SET next_attempt_at = now() WHERE event_id = $1`, eventID)
		b.waitFor(eventID, endpointID, "RETRYING", 2)
		var deliveryID uuid.UUID
		b.scan(`UPDATE apipay.outbound_webhook_deliveries SET next_attempt_at = now() + interval '20 milliseconds' WHERE event_id = $1 RETURNING id`,
			[]any{eventID}, &deliveryID)
		var clicks sync.WaitGroup
		var accepted atomic.Int64
		for range 20 {
			clicks.Go(func() {
				if b.click(deliveryID) {
					accepted.Add(1)
				}
			})
		}
		clicks.Wait()
		r := b.waitFor(eventID, endpointID, "RETRYING", 3)
		require.LessOrEqual(t, accepted.Load(), int64(1))
		require.Len(t, rx.got(), base+3, "one POST for the click and the schedule together")
		require.InDelta(t, 30*60*1.05, *r.NextIn, 30*60*0.05+5, "attempt 4 comes by the schedule")
		answer.Store(http.StatusOK)
		b.exec(`UPDATE apipay.outbound_webhook_deliveries SET next_attempt_at = now() WHERE event_id = $1`, eventID)
		b.waitFor(eventID, endpointID, "DELIVERED", 4)
		list := b.attempts(eventID)
		require.Len(t, list, 4)
		for i, a := range list {
			require.Equal(t, i+1, a.Number)
		}
		if accepted.Load() == 1 {
			require.Equal(t, "manual", list[2].Trigger)
		}
		require.Equal(t, "scheduled", list[3].Trigger)
		require.False(t, b.click(deliveryID), "delivered")
	}
}

// B75: switched off for failing, with what waited failed too; switched on again it stays on at the next failure, with one
// of the warnings not told again.
func TestDisable_ThenOnAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, status(500))
	endpointID, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	b.run(b.dispatcher())
	endpoint := func() (state string) {
		b.scan(`SELECT status FROM apipay.webhook_endpoints WHERE id = $1`, []any{endpointID}, &state)
		return state
	}
	for range 12 {
		b.waitFor(b.publish(d, succeeded), endpointID, "RETRYING", 1)
	}
	require.Equal(t, "enabled", endpoint(), "failures of one moment do not switch off")
	b.exec(`UPDATE apipay.webhook_endpoint_states SET failing_since = failing_since - interval '7 days'`)
	last := b.publish(d, succeeded)
	b.eventually(func() bool { return endpoint() == "disabled" }, "switched off")
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.outbox_events WHERE type = 'webhook_endpoint.disabled'`))
	b.eventually(func() bool {
		return b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'FAILED' AND failure_reason = 'endpoint_disabled'`) == 13
	}, "what waited")
	require.Equal(t, 1, b.delivery(last, endpointID).AttemptCount)

	b.exec(`UPDATE apipay.webhook_endpoints SET status = 'enabled', disabled_reason = NULL, enabled_at = now() WHERE id = $1`, endpointID)
	b.waitFor(b.publish(d, succeeded), endpointID, "RETRYING", 1)
	require.Equal(t, "enabled", endpoint())
	var failed int
	b.scan(`SELECT failed_attempts FROM apipay.webhook_endpoint_states WHERE endpoint_id = $1`, []any{endpointID}, &failed)
	require.Equal(t, 1, failed, "the counters began anew")
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.outbox_events WHERE type = 'webhook_endpoint.disabled'`))
}

// B75: two failures with silence between them, and a success on the sixth day: it stays on.
func TestDisable_NotByTimeAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var answer atomic.Int64
	answer.Store(http.StatusInternalServerError)
	rx := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(answer.Load())) })
	quiet, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	b.waitFor(b.publish(d, succeeded), quiet, "RETRYING", 1)
	later := func(days int) {
		b.exec(`UPDATE apipay.webhook_endpoint_states SET failing_since = failing_since - make_interval(days => $1),
			last_failure_at = last_failure_at - make_interval(days => $1), last_success_at = last_success_at - make_interval(days => $1)`, days)
	}
	later(8)
	b.waitFor(b.publish(d, succeeded), quiet, "RETRYING", 1)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.webhook_endpoints WHERE status = 'enabled'`), "one failure, silence, one failure")

	for range disableAttempts - 3 {
		b.waitFor(b.publish(d, succeeded), quiet, "RETRYING", 1)
	}
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.webhook_endpoints WHERE status = 'enabled'`), "nine attempts")
	b.publish(d, succeeded)
	b.eventually(func() bool {
		return b.count(`SELECT count(*) FROM apipay.webhook_endpoints WHERE status = 'enabled'`) == 0
	}, "the tenth")
	b.exec(`UPDATE apipay.webhook_endpoints SET status = 'enabled', disabled_reason = NULL, enabled_at = now()`)
	for range 12 {
		b.waitFor(b.publish(d, succeeded), quiet, "RETRYING", 1)
	}
	later(6)
	answer.Store(http.StatusOK)
	b.waitFor(b.publish(d, succeeded), quiet, "DELIVERED", 1)
	answer.Store(http.StatusInternalServerError)
	later(2)
	b.waitFor(b.publish(d, succeeded), quiet, "RETRYING", 1)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.webhook_endpoints WHERE status = 'enabled'`), "a success on the sixth day")
}
