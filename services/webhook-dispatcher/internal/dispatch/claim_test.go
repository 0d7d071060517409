package dispatch

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/webhook-dispatcher/internal/post"
)

// C6, B97: never more than the cap at once, over all replicas, and every delivery once (A2).
func TestClaim_CapHoldsOverReplicas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var inFlight, most, posts atomic.Int64
	rx := newReceiver(t, func(int, http.ResponseWriter, *http.Request) {
		posts.Add(1)
		now := inFlight.Add(1)
		for {
			seen := most.Load()
			if now <= seen || most.CompareAndSwap(seen, now) {
				break
			}
		}
		<-time.After(5 * time.Millisecond) // the receiver's own time
		inFlight.Add(-1)
	})
	b.endpoint(rx.URL)
	replicas := []*Dispatcher{b.dispatcher(), b.dispatcher(), b.dispatcher()}
	for _, d := range replicas {
		b.run(d)
	}
	const events = 600
	for i := 0; i < events; i += 100 {
		var batch []kafka.Message
		for range 100 {
			batch = append(batch, b.record(b.tenant, succeeded, nil))
		}
		require.NoError(t, replicas[i/100%3].materialize(t.Context(), batch))
	}
	b.eventually(func() bool {
		return b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'DELIVERED'`) == events
	}, "all delivered")
	require.LessOrEqual(t, most.Load(), int64(b.config.EndpointConcurrency))
	require.EqualValues(t, events, posts.Load(), "no second POST without a fault")
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.outbound_webhook_attempts WHERE outcome <> 'succeeded'`))
}

// B53, B97: hanging endpoints of one tenant leave slots for the others.
func TestClaim_HangingTenantLeavesRoom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hanging := newReceiver(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	d := b.dispatcher()
	b.run(d)
	for range 200 {
		b.endpoint(hanging.URL)
	}
	for range 5 {
		b.publish(d, succeeded)
	}
	b.eventually(func() bool { return len(hanging.got()) >= 100 }, "the hanging ones hold slots")
	other := b.newTenant()
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpointOf(other, rx.URL)
	started := time.Now()
	record := b.record(other, succeeded, nil)
	a, _ := read(record)
	require.NoError(t, d.materialize(t.Context(), asBatch(record)))
	b.waitFor(a.eventID, endpointID, "DELIVERED", 1)
	require.Less(t, time.Since(started), 3*time.Second)
	require.Zero(t, b.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'
		AND application_name = 'dispatcher-test' AND now() - state_change > interval '1 second'`), "no transaction is open during a POST")
}

// C5: five in a row open the breaker, then one probe per 30 s, held rows use no attempt, the first success closes it.
func TestClaim_Breaker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Timeout = 300 * time.Millisecond
	b.config.EndpointConcurrency = 1
	var healthy atomic.Bool
	rx := newReceiver(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		if !healthy.Load() {
			<-r.Context().Done()
		}
	})
	b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	for range 12 {
		b.publish(d, succeeded)
	}
	b.eventually(func() bool {
		return b.count(`SELECT count(*) FROM apipay.webhook_endpoint_states WHERE breaker_opened_at IS NOT NULL`) == 1
	}, "the breaker opens")
	require.Len(t, rx.got(), breakerOpensAt)
	held := func() int {
		return b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'PENDING' AND attempt_count = 0 AND lease_until IS NULL`)
	}
	b.eventually(func() bool { return held() == 12-breakerOpensAt }, "the rest is held")
	require.Never(t, func() bool { return len(rx.got()) > breakerOpensAt }, 1500*time.Millisecond, 20*time.Millisecond)

	b.exec(`UPDATE apipay.webhook_endpoint_states SET next_probe_at = now()`)
	b.eventually(func() bool { return len(rx.got()) == breakerOpensAt+1 }, "one probe")
	require.Never(t, func() bool { return len(rx.got()) > breakerOpensAt+1 }, 1500*time.Millisecond, 20*time.Millisecond)

	healthy.Store(true)
	b.exec(`UPDATE apipay.webhook_endpoint_states SET next_probe_at = now()`)
	b.eventually(func() bool {
		return b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'DELIVERED'`) == 12-breakerOpensAt-1
	}, "a success closes it and the rest goes")
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.webhook_endpoint_states WHERE breaker_opened_at IS NOT NULL`))
}

// A8, B66: no POST while disabled, and nothing vanishes.
func TestSweep_DisabledAndDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, status(500))
	disabled, _ := b.endpoint(rx.URL)
	deleted, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	waiting := b.publish(d, succeeded)
	b.waitFor(waiting, disabled, "RETRYING", 1)
	b.waitFor(waiting, deleted, "RETRYING", 1)
	b.exec(`UPDATE apipay.webhook_endpoints SET status = 'disabled', disabled_reason = 'merchant' WHERE id = $1`, disabled)
	b.exec(`UPDATE apipay.webhook_endpoints SET deleted_at = now() WHERE id = $1`, deleted)
	require.Equal(t, failedDisabled, *b.waitFor(waiting, disabled, "FAILED", 1).FailureReason)
	require.Equal(t, failedDeleted, *b.waitFor(waiting, deleted, "FAILED", 1).FailureReason)
	fresh := b.publish(d, succeeded)
	require.Equal(t, failedDisabled, *b.waitFor(fresh, disabled, "FAILED", 0).FailureReason)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE event_id = $1`, fresh), "a deleted endpoint gets none")
	require.Len(t, rx.got(), 2)
	require.Equal(t, 2, b.count(`SELECT endpoints_matched + (SELECT endpoints_matched FROM apipay.webhook_events WHERE event_id = $2) - 1
		FROM apipay.webhook_events WHERE event_id = $1`, waiting, fresh))

	b.exec(`UPDATE apipay.webhook_endpoints SET status = 'enabled', disabled_reason = NULL, enabled_at = now() WHERE id = $1`, disabled)
	b.retry(fresh, false)
	b.waitFor(fresh, disabled, "RETRYING", 1)
}

func (b *testBundle) retry(eventID uuid.UUID, force bool) {
	b.t.Helper()
	tx, err := b.owner.Begin(b.t.Context())
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, tx.Commit(b.t.Context())) }()
	var deliveryID uuid.UUID
	require.NoError(b.t, tx.QueryRow(b.t.Context(), `SELECT id FROM apipay.outbound_webhook_deliveries WHERE event_id = $1`, eventID).Scan(&deliveryID))
	_, err = webhook.RequestRetry(b.t.Context(), tx, webhook.DeliveryRef{ID: deliveryID}, force)
	require.NoError(b.t, err)
}

// W17 with force: a resend that fails leaves the delivery delivered.
func TestRetry_ForcedResendFallsBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n > 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	endpointID, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	eventID := b.publish(d, succeeded)
	before := b.waitFor(eventID, endpointID, "DELIVERED", 1)
	b.retry(eventID, true)
	after := b.waitFor(eventID, endpointID, "DELIVERED", 2)
	require.Equal(t, before.DeliveredAt, after.DeliveredAt)
	require.Nil(t, after.FailureReason)
}

// B67: the next attempt goes to the new URL.
func TestClaim_URLChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old, moved := newReceiver(t, status(500)), newReceiver(t, nil)
	endpointID, _ := b.endpoint(old.URL)
	d := b.dispatcher()
	b.run(d)
	eventID := b.publish(d, succeeded)
	b.waitFor(eventID, endpointID, "RETRYING", 1)
	b.exec(`UPDATE apipay.webhook_endpoints SET url = $1`, moved.URL)
	b.travel(2 * time.Minute)
	b.waitFor(eventID, endpointID, "DELIVERED", 2)
	require.Len(t, old.got(), 1)
	require.Len(t, moved.got(), 1)
}

// A row that is not terminal seven days after it was made due ends as expired.
func TestSweep_Expired(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpointID, _ := b.endpoint("http://127.0.0.1:1/")
	d := b.dispatcher()
	eventID := b.publish(d, succeeded)
	b.exec(`INSERT INTO apipay.webhook_endpoint_states (endpoint_id, tenant_id, livemode, breaker_opened_at, next_probe_at, counted_from)
		SELECT id, tenant_id, livemode, now(), now() + interval '30 days', enabled_at FROM apipay.webhook_endpoints`)
	young := b.publish(d, succeeded)
	b.exec(`UPDATE apipay.outbound_webhook_deliveries SET due_since = due_since - interval '7 days', next_attempt_at = next_attempt_at - interval '7 days'
		WHERE event_id = $1`, eventID)
	b.run(d)
	require.Equal(t, failedExpired, *b.waitFor(eventID, endpointID, "FAILED", 0).FailureReason)
	require.Equal(t, "PENDING", b.delivery(young, endpointID).Status)
}

// A3, B69: a late result changes nothing and is kept as superseded.
func TestRecord_LostLeaseIsSuperseded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpoint(rx.URL)
	late, other := b.dispatcher(), b.dispatcher()
	eventID := b.publish(late, succeeded)
	asks, _ := late.work.pick(time.Now())
	list, _, err := late.claim(t.Context(), asks)
	require.NoError(t, err)
	require.Len(t, list, 1)

	b.run(other)
	b.travel(2 * time.Minute)
	b.waitFor(eventID, endpointID, "DELIVERED", 1)
	require.NoError(t, late.recordAll(t.Context(), []attempt{{
		claimed: list[0], id: beside(eventID), startedAt: list[0].claimedAt, result: post.Result{Class: post.ClassStatus, StatusCode: 500},
	}}))
	r := b.delivery(eventID, endpointID)
	require.Equal(t, "DELIVERED", r.Status)
	require.Equal(t, 1, r.AttemptCount)
	outcomes := map[string]int{}
	for _, a := range b.attempts(eventID) {
		require.Equal(t, 1, a.Number)
		outcomes[a.Outcome]++
	}
	require.Equal(t, map[string]int{"succeeded": 1, "superseded": 1}, outcomes)
	require.Len(t, rx.got(), 1)
	require.Zero(t, b.count(`SELECT failed FROM apipay.webhook_endpoint_health`), "what was superseded is not counted")
}

// A delivery that kills its dispatcher comes to an end: the third lost lease in a row is counted.
func TestRescue_ThirdLostLeaseCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpointID, _ := b.endpoint("http://127.0.0.1:1/")
	d := b.dispatcher()
	eventID := b.publish(d, succeeded)
	for n := 1; n <= lostInARow; n++ {
		d.work = newWorklist(1, slots)
		d.work.add(endpointID, b.tenant, firstAttempts, time.Time{})
		asks, _ := d.work.pick(time.Now())
		list, _, err := d.claim(t.Context(), asks)
		require.NoError(t, err)
		require.Len(t, list, 1, n)
		require.Equal(t, 1, list[0].Number)
		b.travel(2 * time.Minute)
		_, err = d.rescue(t.Context())
		require.NoError(t, err)
	}
	r := b.delivery(eventID, endpointID)
	require.Equal(t, "RETRYING", r.Status)
	require.Equal(t, 1, r.AttemptCount)
	require.GreaterOrEqual(t, *r.NextIn, 58.0)
	list := b.attempts(eventID)
	require.Len(t, list, 1)
	require.Equal(t, "lost", list[0].Outcome)
}

// B72: three endpoints, the same URL twice, each with its own second attempt.
func TestRetry_FanOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n <= 3 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	var endpoints []uuid.UUID
	for range 3 {
		endpointID, _ := b.endpoint(rx.URL)
		endpoints = append(endpoints, endpointID)
	}
	d := b.dispatcher()
	b.run(d)
	eventID := b.publish(d, succeeded)
	for _, endpointID := range endpoints {
		b.waitFor(eventID, endpointID, "RETRYING", 1)
	}
	b.travel(2 * time.Minute)
	for _, endpointID := range endpoints {
		b.waitFor(eventID, endpointID, "DELIVERED", 2)
	}
	require.Len(t, b.attempts(eventID), 6)
}

// B99: while results cannot be recorded nothing is sent again; after the repair all is normal.
func TestRecord_FailingStopsSending(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, nil)
	endpointID, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	b.exec(`REVOKE INSERT ON apipay.outbound_webhook_attempts FROM apipay_worker`)
	eventID := b.publish(d, succeeded)
	b.eventually(d.recordFails.Load, "the record fails")
	b.travel(2 * time.Minute) // the lease is over and rescued
	b.eventually(func() bool { return b.delivery(eventID, endpointID).LeaseUntil == nil }, "rescued")
	require.Never(t, func() bool { return len(rx.got()) > 1 }, time.Second, 20*time.Millisecond)
	b.exec(`GRANT INSERT ON apipay.outbound_webhook_attempts TO apipay_worker`)
	b.waitFor(eventID, endpointID, "DELIVERED", 1)
}

// E4, B91: a POST in flight ends and is recorded; what waits is left to the others.
func TestRun_DrainsInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	rx := newReceiver(t, func(int, http.ResponseWriter, *http.Request) { <-release })
	endpointID, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	stop := b.run(d)
	eventID := b.publish(d, succeeded)
	b.eventually(func() bool { return len(rx.got()) == 1 }, "in flight")
	var wg sync.WaitGroup
	wg.Go(stop)
	close(release)
	wg.Wait()
	r := b.delivery(eventID, endpointID)
	require.Equal(t, "DELIVERED", r.Status)
	require.Nil(t, r.LeaseUntil)
}

// A4: what is claimed never waits for a slot.
func TestWorklist_AsksForNoMoreThanIsFree(t *testing.T) {
	t.Parallel()
	w := newWorklist(4, 10)
	for tenant := range 3 {
		for range 5 {
			w.add(uuid.New(), tenantNumber(tenant), firstAttempts, time.Time{})
		}
	}
	asks, _ := w.pick(time.Now())
	total, perTenant := 0, map[uuid.UUID]int{}
	for _, a := range asks {
		total += a.want
		perTenant[w.endpoints[a.endpointID].tenant.id] += a.want
	}
	require.LessOrEqual(t, total, 10)
	require.Len(t, perTenant, 3)
	for tenant, n := range perTenant {
		require.LessOrEqual(t, n, 4, "tenant %s", tenant)
	}
	require.Positive(t, w.free, "somebody new finds a slot")
}

func TestWorklist_FirstAttemptsBeforeRetries(t *testing.T) {
	t.Parallel()
	w := newWorklist(4, 8)
	tenant, retrying, fresh := uuid.New(), uuid.New(), uuid.New()
	w.add(retrying, tenant, retries, time.Time{})
	w.add(fresh, uuid.New(), firstAttempts, time.Time{})
	asks, _ := w.pick(time.Now())
	require.Equal(t, fresh, asks[0].endpointID)
	require.Equal(t, 4, asks[0].want)
}

func tenantNumber(n int) uuid.UUID {
	return uuid.MustParse(fmt.Sprintf("00000000-0000-7000-8000-%012d", n+1))
}

// What is held leaves the list: it comes back with the discovery, for as long as rows wait.
func TestWorklist_ForgetsWhatIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorklist(4, 8)
	w.add(uuid.New(), uuid.New(), firstAttempts, time.Time{})
	now := time.Now()
	asks, _ := w.pick(now)
	require.Len(t, asks, 1)
	w.settle(asks[0], verdict{held: hold}, now)
	asks, _ = w.pick(now)
	require.Empty(t, asks)
	require.Equal(t, 8, w.free)
	_, _ = w.pick(now.Add(2 * hold))
	require.Empty(t, w.endpoints)
	require.Empty(t, w.tenants)
}

// B3: retries leave half of the slots, however many are due.
func TestWorklist_RetriesLeaveRoom(t *testing.T) {
	t.Parallel()
	w := newWorklist(4, 100)
	for range 50 {
		w.add(uuid.New(), uuid.New(), retries, time.Time{})
	}
	total := 0
	for range 5 {
		asks, _ := w.pick(time.Now())
		for _, a := range asks {
			total += a.want
		}
	}
	require.LessOrEqual(t, total, 50)
	require.GreaterOrEqual(t, w.free, 50)
}
