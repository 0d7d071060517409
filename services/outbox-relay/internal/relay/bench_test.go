package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
)

// BenchmarkDrain empties a backlog of b.N events of 500 bytes with one replica, the broker in its own process.
// go test -run NONE -bench Drain -benchtime 200000x
func BenchmarkDrain(b *testing.B) {
	bundle := &bundle{t: b, db: testdb.New(b)}
	bundle.owner = bundle.db.Pool(b, bundle.db.Owner)
	bundle.kafka = &fakeKafka{addrs: testdb.Brokers(b)}
	const slice = 100_000
	tenants := tenantIDs(200)
	for left := b.N; left > 0; left -= slice {
		bundle.fill(tenants, min(left, slice), 500)
	}
	_, err := bundle.owner.Exec(b.Context(), "ANALYZE apipay.outbox_events")
	require.NoError(b, err)
	r := bundle.newRelay()
	b.ResetTimer()
	start := time.Now()
	run(b, r)
	const anyPending = `SELECT EXISTS (SELECT FROM apipay.outbox_events WHERE published_at IS NULL AND parked_at IS NULL)`
	for pending := true; pending; {
		time.Sleep(5 * time.Millisecond)
		require.NoError(b, bundle.owner.QueryRow(b.Context(), anyPending).Scan(&pending))
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "events/s")
	b.ReportMetric(0, "ns/op")
}
