package dispatch

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/broker"
	"apipay.io/hub/proto/events"
)

// BenchmarkPaced measures the time from the record's produce to the first byte at the receiver, at 600 events a second
// (E7). Run with -benchtime=3000x.
func BenchmarkPaced(b *testing.B) {
	kfake, err := broker.Start(broker.Config{})
	require.NoError(b, err)
	defer kfake.Close()
	bundle := setup(b)
	bundle.config.Brokers = kfake.Addrs()
	var mu sync.Mutex
	var took []time.Duration
	rx := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		now := time.Now()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		_, rest, _ := strings.Cut(string(body), `"sent":"`)
		stamp, _, _ := strings.Cut(rest, `"`)
		if nanos, err := strconv.ParseInt(stamp, 10, 64); err == nil {
			mu.Lock()
			took = append(took, now.Sub(time.Unix(0, nanos)))
			mu.Unlock()
		}
	}))
	defer rx.Close()
	for range 100 {
		tenant := bundle.newTenant()
		bundle.endpointOf(tenant, rx.URL)
	}
	var keys []string
	rows, err := bundle.owner.Query(context.Background(), `SELECT tenant_id::text FROM apipay.webhook_endpoints`)
	require.NoError(b, err)
	for rows.Next() {
		var key string
		require.NoError(b, rows.Scan(&key))
		keys = append(keys, key)
	}
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	writer := &kafka.Writer{Transport: transport, Addr: kafka.TCP(kfake.Addrs()...), Topic: events.TopicOutboundWebhooks, Balancer: kafka.Murmur2Balancer{},
		RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond, Async: true}
	stop := bundle.run(bundle.dispatcher())
	defer stop()
	send := func(n int) {
		record := bundle.record(bundle.tenant, succeeded, map[string]any{"id": "pi_x", "object": "payment_intent",
			"sent": strconv.FormatInt(time.Now().UnixNano(), 10), "pad": strings.Repeat("x", 700)})
		require.NoError(b, writer.WriteMessages(context.Background(), kafka.Message{Key: []byte(keys[n%len(keys)]), Value: record.Value, Headers: record.Headers}))
	}
	got := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(took)
	}
	for send(0); got() == 0; {
		time.Sleep(10 * time.Millisecond) // the group forms
	}
	took = nil
	ticker := time.NewTicker(time.Second / 600)
	defer ticker.Stop()
	b.ResetTimer()
	for n := range b.N {
		<-ticker.C
		send(n)
	}
	for got() < b.N {
		time.Sleep(10 * time.Millisecond)
	}
	b.StopTimer()
	require.NoError(b, writer.Close())
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
