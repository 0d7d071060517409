package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const restartEvery = 30 * time.Second

// TestRolling (B91) restarts every replica of every service each 30 s, one after the other as a rolling update does, while
// merchants buy, staff look, and receivers take up to 5 s: no call fails, every delivery ends DELIVERED by one POST, and
// none waits for the lease of a dispatcher that is gone. ROLLING_SECONDS is its length.
func TestRolling(t *testing.T) {
	length := seconds(t, "ROLLING_SECONDS")
	h := start(t, "RELAYS=2", "DISPATCHERS=2", "PAYMENT_APIS=2")
	// The stack has one admin-api; a deployment that restarts without a gap has two.
	second := h.extra(t, "admin-api", "")
	rx := listen(t)
	rx.delay = func() time.Duration {
		if rand.IntN(50) > 0 { // #nosec G404 -- one answer in 50 is slow
			return 0
		}
		return time.Duration(1000+rand.IntN(4000)) * time.Millisecond // #nosec G404
	}
	shops := h.shops(t, rx, 8)
	apis := balance(t, h.URLs.Replicas["payment_api"], h.URLs.Ops["payment_api"])
	for i := range shops {
		shops[i].through = apis
	}
	staff := h.staff(t)
	staff.through = balance(t, append(h.URLs.Replicas["admin_api"], second.api), append(h.URLs.Ops["admin_api"], second.ops))

	begun := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	merchants, support := &traffic{}, &traffic{}
	var all sync.WaitGroup
	// Calls outlive the end of the load: what was begun is finished.
	all.Go(func() {
		every(ctx, 100*time.Millisecond, func(n int) { merchants.buy(t.Context(), shops[n%len(shops)]) })
	})
	all.Go(func() {
		every(ctx, 200*time.Millisecond, func(int) {
			support.once(t.Context(), staff, http.StatusOK, "GET", "/admin/v1/webhook-deliveries?limit=5", "", nil)
		})
	})
	rounds, slowest := 0, time.Duration(0)
	for next := begun.Add(5 * time.Second); next.Before(begun.Add(length)); next = next.Add(restartEvery) {
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
		}
		roundBegun := time.Now()
		for _, name := range []string{"payment-api/1", "payment-api/2", "outbox-relay/1", "outbox-relay/2",
			"webhook-dispatcher/1", "webhook-dispatcher/2", "admin-api"} {
			restarted := time.Now()
			require.NoError(t, h.order("restart", name))
			slowest = max(slowest, time.Since(restarted))
			require.NoError(t, apis.sees(t.Context()))
			require.NoError(t, staff.through.sees(t.Context()))
		}
		require.NoError(t, second.restart())
		rounds++
		t.Logf("round %d took %s, load %s", rounds, time.Since(roundBegun).Round(100*time.Millisecond), loadAverage())
	}
	all.Wait()
	h.refresh(t)

	merchants.requireNoFailure(t)
	support.requireNoFailure(t)
	h.eventually(t, 30*time.Second, 0, unpublished)
	h.eventually(t, 30*time.Second, 0, undone)
	require.Zero(t, h.count(t, undelivered))
	h.requireSettled(t, merchants.bought)
	deliveries := h.count(t, `SELECT count(*) FROM apipay.outbound_webhook_deliveries`)
	require.Equal(t, merchants.bought*perPurchase, deliveries)
	require.Zero(t, h.count(t, `SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE attempt_count <> 1`), "deliveries that took more than one attempt")
	require.Equal(t, deliveries, h.count(t, `SELECT count(*) FROM apipay.outbound_webhook_attempts`))
	require.Zero(t, h.count(t, `SELECT count(*) FROM apipay.outbound_webhook_attempts WHERE outcome <> 'succeeded'`))
	for _, s := range shops {
		for id, hooks := range rx.at(s.path) {
			require.Len(t, hooks, 1, "POSTs of %s", id)
		}
	}
	const waited = `
		SELECT coalesce(percentile_cont($1::float8) WITHIN GROUP (ORDER BY extract(epoch FROM a.started_at - e.created_at)::float8), 0) * 1000
		FROM apipay.outbound_webhook_attempts a JOIN apipay.outbox_events e ON e.id = a.event_id`
	var p50, p99, worst float64
	for q, target := range map[float64]*float64{0.5: &p50, 0.99: &p99, 1: &worst} {
		require.NoError(t, h.owner.QueryRow(t.Context(), waited, q).Scan(target))
	}
	require.Less(t, worst, 20_000.0, "ms from an event to its POST: a delivery waited for a lease")
	fmt.Printf("rolling: %.0f s, %d rounds of 8 restarts (slowest %s): %d calls of merchants (p50 %s, p99 %s, max %s) and %d of staff, 0 failed; "+
		"%d purchases, %d deliveries, each DELIVERED by 1 attempt; event to POST p50 %.0f ms, p99 %.0f ms, max %.0f ms; load %s\n",
		length.Seconds(), rounds, slowest.Round(100*time.Millisecond), merchants.calls, merchants.quantile(0.5), merchants.quantile(0.99), merchants.quantile(1),
		support.calls, merchants.bought, deliveries, p50, p99, worst, loadAverage())
}
