package dispatch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

// failedDeliveries fills the database with events whose deliveries to the endpoint have failed for good.
func (b *testBundle) failedDeliveries(endpointID uuid.UUID, rows int) {
	b.t.Helper()
	for done := 0; done < rows; {
		n := min(rows-done, 100_000)
		b.exec(`
			WITH made AS (
			    INSERT INTO apipay.webhook_events (event_id, tenant_id, livemode, type, body, kafka_topic, kafka_partition, kafka_offset,
			        endpoints_matched, event_created_at)
			    SELECT overlay(overlay(gen_random_uuid()::text placing $4 from 1) placing '7' from 15)::uuid, e.tenant_id, false,
			        'payment_intent.succeeded', '{}', 'apipay.outbound-webhooks.v1', 0, $2::bigint + i, 1, date_trunc('second', now())
			    FROM apipay.webhook_endpoints e, generate_series(1, $3::int) i WHERE e.id = $1
			    RETURNING event_id, tenant_id)
			INSERT INTO apipay.outbound_webhook_deliveries (event_id, endpoint_id, id, tenant_id, livemode, event_type, status,
			    attempt_count, failed_at, failure_reason)
			SELECT event_id, $1, apipay.uuid7_beside(event_id), tenant_id, false, 'payment_intent.succeeded', 'FAILED', 6, now(),
			    'attempts_exhausted'
			FROM made`, endpointID, done, n, id.NewAt(time.Now(), 0).String()[:13])
		done += n
	}
	b.exec(`ANALYZE apipay.outbound_webhook_deliveries`)
}

// recoverKilled asks for everything that failed at one endpoint, kills the dispatcher in the middle of it and lets
// another finish. It returns the rows a second that were queued while one was at work.
func (b *testBundle) recoverKilled(rows int) float64 {
	b.t.Helper()
	const neighbors = 1000
	rx := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer rx.Close()
	endpointID, _ := b.endpoint(rx.URL)
	other, _ := b.endpoint(rx.URL)
	b.failedDeliveries(endpointID, rows)
	b.failedDeliveries(other, neighbors)
	recoveryID := b.askRecovery(fmt.Sprintf(`{"tenant":%q,"endpoint":%q}`, id.Format(id.Tenant, b.tenant), id.Format(id.Endpoint, endpointID)))
	queued := func() (n int) {
		b.scan(`SELECT queued FROM apipay.recoveries WHERE id = $1`, []any{recoveryID}, &n)
		return n
	}
	// until waits for a count to be reached and tells how long it took.
	until := func(least int) time.Duration {
		var began time.Time
		start := queued()
		for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
			n := queued()
			if began.IsZero() && n > start {
				began = time.Now()
			}
			if n >= least {
				return time.Since(began)
			}
			require.True(b.t, time.Now().Before(deadline), "only %d of %d queued", n, rows)
		}
	}
	first := b.process()
	took := until(rows / 3)
	kill(b.t, first)
	middle := queued()
	require.Less(b.t, middle, rows, "killed in the middle")
	require.Equal(b.t, middle, b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE recovery_id = $1`, recoveryID),
		"what is counted is what was queued")
	second := b.process()
	defer kill(b.t, second)
	took += until(rows)

	require.Equal(b.t, 1, b.count(`SELECT count(*) FROM apipay.recoveries WHERE matched = $1 AND queued = $1`, rows), "each once, none left out")
	require.Equal(b.t, rows, b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE recovery_id = $1`, recoveryID))
	require.Equal(b.t, neighbors, b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'FAILED'`), "nothing beside the filter")
	return float64(rows-recoverBatch*2) / took.Seconds()
}

// E2, scaled down: see BenchmarkRecover for the full size.
func TestRecover_KilledInTheMiddle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rate := b.recoverKilled(20_000)
	t.Logf("%.0f rows/s queued", rate)
}

// BenchmarkRecover is E2: rows a second that a recovery queues, killed in the middle and finished, while the receiver is
// being sent to. Run with -benchtime=1000000x.
func BenchmarkRecover(b *testing.B) {
	if b.N < 10*recoverBatch {
		return // the first round, in which the testing package tries a benchmark once
	}
	bundle := setup(b)
	b.ReportMetric(bundle.recoverKilled(b.N), "rows/s")
}
