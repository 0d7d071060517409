package relay

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/kafkaconn"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const topic = outbox.TopicWebhooks

// bundle is one test's database and broker.
type bundle struct {
	t     testing.TB
	db    *testdb.DB
	owner *pgxpool.Pool
	super *pgxpool.Pool
	kafka *fakeKafka
}

func setup(t testing.TB, opts ...kfake.Opt) *bundle {
	t.Helper()
	db := testdb.New(t)
	return &bundle{t: t, db: db, owner: db.Pool(t, db.Owner), super: db.Pool(t, db.Super), kafka: startKafka(t, opts...)}
}

func workerPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(dsn, postgres.Options{ApplicationName: "outbox-relay", MaxConns: Connections})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// replica is a relay that runs until it is stopped.
type replica struct {
	*Relay
	stop func()
	kill func()
	err  error
	done chan struct{}
}

// newRelay makes a replica on a pool of its own that the test starts by run.
func (b *bundle) newRelay(change ...func(*Config)) *Relay {
	b.t.Helper()
	config := Config{Config: kafkaconn.Config{Brokers: b.kafka.addrs}, Batch: 500, Retention: 840 * time.Hour}
	for _, c := range change {
		c(&config)
	}
	r, err := New(config, workerPool(b.t, b.db.Worker), ops.NewHealth(), quietLog())
	require.NoError(b.t, err)
	return r
}

func quietLog() *slog.Logger {
	if testing.Verbose() {
		return slog.Default()
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

func run(t testing.TB, r *Relay) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p := &replica{Relay: r, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = r.Run(ctx)
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-p.done
		require.NoError(t, p.err)
	})
	p.kill = func() {
		cancel()
		<-p.done
	}
	t.Cleanup(p.kill)
	return p
}

// start runs a replica until the test ends.
func (b *bundle) start(change ...func(*Config)) *replica {
	b.t.Helper()
	return run(b.t, b.newRelay(change...))
}

// fill inserts count pending events of tenants, in their order, with payloads of size bytes.
func (b *bundle) fill(tenants []uuid.UUID, count, size int) {
	b.t.Helper()
	lanes := make([]int16, len(tenants))
	for i, tenant := range tenants {
		lanes[i] = outbox.Lane(tenant)
	}
	const query = `
		INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload)
		SELECT overlay(overlay((apipay.uuid7_floor(now())::text) PLACING '7' FROM 15) PLACING substr(gen_random_uuid()::text, 16) FROM 16)::uuid,
		       ($1::uuid[])[1 + i % $3], false, $4, ($2::int2[])[1 + i % $3], 'ping', decode(repeat('7a', $6), 'hex')
		FROM generate_series(0, $5 - 1) i`
	_, err := b.owner.Exec(b.t.Context(), query, tenants, lanes, len(tenants), topic, count, size)
	require.NoError(b.t, err)
}

// tenantIDs are n tenants; the outbox has no foreign key to them.
func tenantIDs(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	return ids
}

// pending counts what is neither published nor parked.
func (b *bundle) pending() (count int) {
	b.t.Helper()
	const query = `SELECT count(*) FROM apipay.outbox_events WHERE published_at IS NULL AND parked_at IS NULL`
	require.NoError(b.t, b.owner.QueryRow(b.t.Context(), query).Scan(&count))
	return count
}

// drained waits until nothing is pending.
func (b *bundle) drained(within time.Duration) {
	b.t.Helper()
	eventually(b.t, within, "the outbox is empty", func() bool { return b.pending() == 0 })
}

// eventually polls for something to become true.
func eventually(t testing.TB, within time.Duration, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// consumed is one record as a reader sees it.
type consumed struct {
	partition int
	offset    int64
	key       string
	value     []byte
	headers   map[string]string
}

// readAll reads every partition of a topic from its beginning to its present end.
func readAll(t testing.TB, addrs []string, topic string) []consumed {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := kafka.Client{Addr: kafka.TCP(addrs...), Transport: transport}
	metadata, err := client.Metadata(t.Context(), &kafka.MetadataRequest{Topics: []string{topic}})
	require.NoError(t, err)
	var all []consumed
	for _, partition := range metadata.Topics[0].Partitions {
		offset := int64(0)
		for {
			response, err := client.Fetch(t.Context(), &kafka.FetchRequest{
				Topic: topic, Partition: partition.ID, Offset: offset, MinBytes: 0, MaxBytes: 10 << 20, MaxWait: time.Millisecond,
			})
			require.NoError(t, err)
			require.NoError(t, response.Error)
			before := offset
			for {
				record, err := response.Records.ReadRecord()
				if err != nil {
					require.ErrorIs(t, err, io.EOF)
					break
				}
				if record.Offset < offset {
					continue
				}
				one := consumed{partition: partition.ID, offset: record.Offset, headers: map[string]string{}}
				key, err := kafka.ReadAll(record.Key)
				require.NoError(t, err)
				one.key = string(key)
				one.value, err = kafka.ReadAll(record.Value)
				require.NoError(t, err)
				for _, h := range record.Headers {
					one.headers[h.Key] = string(h.Value)
				}
				all = append(all, one)
				offset = record.Offset + 1
			}
			if offset == before {
				require.GreaterOrEqual(t, offset, response.HighWatermark)
				break
			}
		}
	}
	return all
}
