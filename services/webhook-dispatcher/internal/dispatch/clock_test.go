package dispatch

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
)

// B70: dispatchers whose clocks are minutes off send once, at the database's times, with signatures that are fresh.
func TestClock_SkewChangesNothing(t *testing.T) {
	t.Parallel()
	const events, endpoints = 50, 4
	for name, skew := range map[string]time.Duration{"ahead": 3 * time.Minute, "behind": -3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var refusing atomic.Bool
			refusing.Store(true)
			rx := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
				<-time.After(50 * time.Millisecond)
				if refusing.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
			for range endpoints {
				b.endpoint(rx.URL)
			}
			right, wrong := b.dispatcher(), b.dispatcher()
			// Round takes the monotonic reading off: a wall clock, and a wrong one.
			wrong.clock = func() time.Time { return time.Now().Add(skew).Round(0) }
			b.run(right)
			b.run(wrong)
			var batch []kafka.Message
			for range events {
				batch = append(batch, b.record(b.tenant, succeeded, nil))
			}
			require.NoError(t, wrong.materialize(t.Context(), batch))
			const total = events * endpoints
			b.eventually(func() bool {
				return b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'RETRYING' AND lease_until IS NULL`) == total
			}, "all tried")
			require.Len(t, rx.got(), total, "each once")
			// Written by the commit of the failure, plus 60 to 66 s.
			require.Zero(t, b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries
				WHERE next_attempt_at - updated_at NOT BETWEEN interval '60 seconds' AND interval '66.1 seconds' OR attempt_count <> 1`))
			require.Zero(t, b.count(`SELECT count(*) FROM apipay.outbound_webhook_attempts
				WHERE started_at NOT BETWEEN created_at - interval '10 seconds' AND created_at`))
			for _, request := range rx.got() {
				stamp, err := strconv.ParseInt(request.header.Get("Webhook-Timestamp"), 10, 64)
				require.NoError(t, err)
				require.InDelta(t, request.at.Unix(), stamp, 2)
			}

			refusing.Store(false)
			b.travel(67 * time.Second)
			b.eventually(func() bool { return b.delivered() == total }, "all delivered")
			require.Len(t, rx.got(), 2*total)
			require.Zero(t, b.count(`SELECT count(*) FROM apipay.outbound_webhook_attempts WHERE outcome IN ('lost', 'superseded')`))
		})
	}
}
