package relay

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
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

// BenchmarkLatency is the time from a commit to the broker's acknowledgement, as marked, at 600 events/s over
// many lanes. go test -run NONE -bench Latency -benchtime 6000x
func BenchmarkLatency(b *testing.B) {
	bundle := &bundle{t: b, db: testdb.New(b)}
	bundle.owner = bundle.db.Pool(b, bundle.db.Owner)
	bundle.kafka = &fakeKafka{addrs: testdb.Brokers(b)}
	bundle.start()
	bundle.latency(b)
}

// BenchmarkHeldSnapshot is the same after 5 minutes at 600 events/s under a snapshot that somebody holds: what was
// published since stays in the index of pending events.
func BenchmarkHeldSnapshot(b *testing.B) {
	bundle := &bundle{t: b, db: testdb.New(b)}
	bundle.owner = bundle.db.Pool(b, bundle.db.Owner)
	bundle.kafka = &fakeKafka{addrs: testdb.Brokers(b)}
	reader, err := bundle.owner.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(b, err)
	defer reader.Rollback(context.Background())
	_, err = reader.Exec(b.Context(), "SELECT 1")
	require.NoError(b, err)
	r := bundle.start()
	tenants := tenantIDs(200)
	for range 18 {
		bundle.fill(tenants, 10_000, 300)
	}
	start := time.Now()
	bundle.drained(2 * time.Minute)
	b.Logf("180000 dead entries after another %s", time.Since(start))
	var highest int64
	require.NoError(b, bundle.owner.QueryRow(b.Context(), `SELECT max(seq) FROM apipay.outbox_events`).Scan(&highest))
	eventually(b, 30*time.Second, "bounds have followed", func() bool { return r.floors.of(lane{topic, 0}) >= highest })
	bundle.latency(b)
}

// latency inserts b.N events at 600/s and reports how long they took.
func (bundle *bundle) latency(b *testing.B) {
	b.Helper()
	tenants := tenantIDs(200)
	const insert = `
		INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload, created_at)
		VALUES ($1, $2, false, $3, $4, 'ping', $5, clock_timestamp())`
	payload := make([]byte, 300)
	ticker := time.NewTicker(time.Second / 600)
	defer ticker.Stop()
	b.ResetTimer()
	for i := range b.N {
		<-ticker.C
		tenant := tenants[i%len(tenants)]
		_, err := bundle.owner.Exec(b.Context(), insert, id.New(), tenant, topic, outbox.Lane(tenant), payload)
		require.NoError(b, err)
	}
	b.StopTimer()
	bundle.drained(10 * time.Second)
	const query = `
		SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY 1000 * extract(epoch FROM published_at - created_at))
		FROM apipay.outbox_events WHERE tenant_id = ANY ($1)`
	var percentiles []float64
	require.NoError(b, bundle.owner.QueryRow(b.Context(), query, tenants).Scan(&percentiles))
	b.ReportMetric(percentiles[0], "p50-ms")
	b.ReportMetric(percentiles[1], "p99-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdle tells what an idle replica costs per second: statements, and the relay's share of a core.
// go test -run NONE -bench Idle -benchtime 1x
func BenchmarkIdle(b *testing.B) {
	bundle := &bundle{t: b, db: testdb.New(b)}
	bundle.owner = bundle.db.Pool(b, bundle.db.Owner)
	bundle.kafka = &fakeKafka{addrs: testdb.Brokers(b)}
	r := bundle.newRelay()
	tracer := &countingTracer{}
	config := r.pool.Config()
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	r.pool = pool
	run(b, r)
	time.Sleep(2 * time.Second) // until it polls at its slowest
	for b.Loop() {
		const span = 5 * time.Second
		before, cpuBefore := tracer.count.Load(), cpuTime(b)
		time.Sleep(span)
		b.ReportMetric(float64(tracer.count.Load()-before)/span.Seconds(), "statements/s")
		b.ReportMetric(100*(cpuTime(b)-cpuBefore).Seconds()/span.Seconds(), "%core")
	}
	b.ReportMetric(0, "ns/op")
}

// countingTracer counts statements, those of batches included.
type countingTracer struct{ count atomic.Int64 }

func (c *countingTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.count.Add(1)
	return ctx
}
func (c *countingTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *countingTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *countingTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	c.count.Add(1)
}
func (c *countingTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
