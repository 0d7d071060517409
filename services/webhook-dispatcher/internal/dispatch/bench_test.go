package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/broker"
	"apipay.io/hub/proto/events"
)

// BenchmarkDispatch measures deliveries a second from a full topic to recorded 2xx answers, 1 KiB bodies, with the
// broker and the receiver in this process. Run with -benchtime=20000x.
func BenchmarkDispatch(b *testing.B) {
	for _, endpoints := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("endpoints=%d", endpoints), func(b *testing.B) { benchmarkDispatch(b, endpoints) })
	}
}

func benchmarkDispatch(b *testing.B, endpoints int) {
	kfake, err := broker.Start(broker.Config{})
	require.NoError(b, err)
	defer kfake.Close()
	bundle := setup(b)
	bundle.config.Brokers = kfake.Addrs()
	var received atomic.Int64
	rx := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
	defer rx.Close()
	tenants := make([]uuid.UUID, endpoints)
	for i := range tenants {
		tenants[i] = bundle.newTenant()
		bundle.endpointOf(tenants[i], rx.URL)
	}
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	writer := &kafka.Writer{Transport: transport, Addr: kafka.TCP(kfake.Addrs()...), Topic: events.TopicOutboundWebhooks, Balancer: kafka.Murmur2Balancer{},
		RequiredAcks: kafka.RequireAll, BatchSize: 1000, BatchTimeout: 5 * time.Millisecond}
	defer writer.Close()
	var batch []kafka.Message
	padding := map[string]any{"id": "pi_x", "object": "payment_intent", "description": string(make([]byte, 0)), "pad": fmt.Sprintf("%0800d", 1)}
	for i := range b.N {
		record := recordAt(tenants[i%endpoints], succeeded, padding, time.Now(), false)
		batch = append(batch, kafka.Message{Key: record.Key, Value: record.Value, Headers: record.Headers})
		if len(batch) == 1000 || i == b.N-1 {
			require.NoError(b, writer.WriteMessages(context.Background(), batch...))
			batch = nil
		}
	}
	var before, after int64
	commits := `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`
	bundle.scan(commits, nil, &before)
	d := bundle.dispatcher()
	b.ResetTimer()
	started := time.Now()
	stop := bundle.run(d)
	for done := 0; done < b.N; {
		time.Sleep(50 * time.Millisecond)
		done = bundle.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'DELIVERED'`)
		if time.Since(started) > 3*time.Minute {
			b.Fatalf("only %d of %d delivered", done, b.N)
		}
	}
	took := time.Since(started)
	b.StopTimer()
	stop()
	bundle.exec(`SELECT pg_stat_clear_snapshot()`)
	bundle.scan(commits, nil, &after)
	b.ReportMetric(float64(b.N)/took.Seconds(), "deliveries/s")
	b.ReportMetric(float64(after-before)/float64(b.N), "commits/delivery")
	b.ReportMetric(float64(received.Load())/float64(b.N), "posts/delivery")
}

// BenchmarkClaim measures one claim over a table that holds far more than what is due (E8): most rows delivered, a tenth
// waiting, of 100 endpoints. CLAIM_ROWS is the number of rows.
func BenchmarkClaim(b *testing.B) {
	rows := 500_000
	if text := os.Getenv("CLAIM_ROWS"); text != "" {
		var err error
		rows, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	bundle := setup(b)
	bundle.config.EndpointConcurrency = 64
	ids := make([]uuid.UUID, 100)
	for i := range ids {
		ids[i], _ = bundle.endpoint("https://receiver.example/")
	}
	bundle.exec(`WITH e AS MATERIALIZED (
		    SELECT apipay.uuid7_beside(apipay.uuid7_floor(now() - n * interval '1 millisecond')) AS event_id, n FROM generate_series(1, $2::int) n
		), w AS (
		    INSERT INTO apipay.webhook_events (event_id, tenant_id, livemode, type, body, kafka_topic, kafka_partition, kafka_offset, endpoints_matched, event_created_at)
		    SELECT event_id, $1, false, 'ping', convert_to(repeat('x', 1024), 'UTF8'), 't', 0, n, 1, now() FROM e
		)
		INSERT INTO apipay.outbound_webhook_deliveries (event_id, endpoint_id, id, tenant_id, livemode, event_type, status, next_attempt_at, delivered_at)
		SELECT event_id, ($3::uuid[])[1 + n % 100], gen_random_uuid(), $1, false, 'ping',
		    CASE WHEN n % 10 = 0 THEN 'PENDING' ELSE 'DELIVERED' END, CASE WHEN n % 10 = 0 THEN now() END, CASE WHEN n % 10 <> 0 THEN now() END
		FROM e`, bundle.tenant, rows, ids)
	d := bundle.dispatcher()
	var took []time.Duration
	b.ResetTimer()
	for range b.N {
		var asks []*ask
		for i := range 10 {
			asks = append(asks, &ask{endpointID: ids[(len(took)*10+i)%10*10], priority: firstAttempts, want: 1})
		}
		started := time.Now()
		_, _, err := d.claim(context.Background(), asks)
		took = append(took, time.Since(started))
		require.NoError(b, err)
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	started := time.Now()
	_, err := d.discover(context.Background())
	require.NoError(b, err)
	b.ReportMetric(float64(time.Since(started).Microseconds())/1000, "discover-ms")
}
