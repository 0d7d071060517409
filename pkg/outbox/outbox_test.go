package outbox_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
)

func TestLane(t *testing.T) {
	t.Parallel()
	// Of the Java client: murmur2("21") = -973932308, so the lane is (-973932308 & 0x7fffffff) % 64.
	require.Equal(t, (-973932308&0x7fffffff)%64, kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: []byte("21")}, partitions(64)...))
	rapid.Check(t, func(t *rapid.T) {
		tenant := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "tenant"))
		count := rapid.SampledFrom([]int{1, 2, 4, 8, 16, 32, 64}).Draw(t, "partitions")
		lane := outbox.Lane(tenant)
		require.GreaterOrEqual(t, lane, int16(0))
		require.Less(t, lane, int16(outbox.Lanes))
		// A lane lies inside one partition: the one that a keyed producer picks.
		require.Equal(t, kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: outbox.Key(tenant)}, partitions(count)...), int(lane)%count)
	})
}

func partitions(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func TestInsert(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	app, owner := db.Pool(t, db.App), db.Pool(t, db.Owner)
	scope := postgres.Scope{TenantID: id.New()}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	ping := func(object any) outbox.Event {
		return outbox.Event{TenantID: scope.TenantID, Topic: outbox.TopicWebhooks, Type: events.TypePing, Object: object,
			Request: outbox.Request{ID: "req_1", IdempotencyKey: "k"}}
	}
	endpoint := map[string]any{"id": id.Format(id.Endpoint, id.New()), "object": "webhook_endpoint", "url": "https://x/?a=1&b=<2>", "version": 1 << 60}

	var ids []uuid.UUID
	var now int64
	require.NoError(t, postgres.InTenant(ctx, app, scope, func(tx postgres.Tx) (err error) {
		now = tx.Now.Unix()
		ids, err = outbox.Insert(ctx, tx, ping(endpoint), ping(endpoint), ping(endpoint))
		return err
	}))
	rows, err := owner.Query(ctx, `SELECT id, payload, traceparent, lane FROM apipay.outbox_events ORDER BY seq`)
	require.NoError(t, err)
	n := 0
	for rows.Next() {
		var eventID uuid.UUID
		var payload []byte
		var traceparent string
		var lane int16
		require.NoError(t, rows.Scan(&eventID, &payload, &traceparent, &lane))
		require.Equal(t, ids[n], eventID, "ids come in the order of seq")
		header, err := events.ParseHeader(payload)
		require.NoError(t, err)
		require.Equal(t, id.Format(id.Event, eventID), header.ID, "the row's id is the evt_ id")
		require.Equal(t, now, header.Created)
		require.Contains(t, string(payload), `"request":{"id":"req_1","idempotency_key":"k"}`)
		require.Contains(t, string(payload), `"url":"https://x/?a=1&b=<2>"`)
		require.Equal(t, "00-01000000000000000000000000000000-0200000000000000-01", traceparent)
		require.Equal(t, outbox.Lane(scope.TenantID), lane)
		n++
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 3, n)
	require.Less(t, ids[0].String(), ids[1].String())
	require.Less(t, ids[1].String(), ids[2].String())

	t.Run("TooLarge", func(t *testing.T) {
		t.Parallel()
		err := postgres.InTenant(t.Context(), app, scope, func(tx postgres.Tx) error {
			_, err := outbox.Insert(t.Context(), tx, ping(strings.Repeat("x", outbox.MaxBytes)))
			return err
		})
		require.ErrorIs(t, err, outbox.ErrTooLarge)
	})
	t.Run("OtherTenant", func(t *testing.T) {
		t.Parallel()
		err := postgres.InTenant(t.Context(), app, postgres.Scope{TenantID: id.New()}, func(tx postgres.Tx) error {
			_, err := outbox.Insert(t.Context(), tx, ping(endpoint))
			return err
		})
		require.ErrorContains(t, err, "row-level security")
	})
}

// Rows of one list, and lists queued one after the other, get seq and id in the order of the events, also beside other
// transactions that insert at the same time.
func TestQueueKeepsTheOrder(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	app, owner := db.Pool(t, db.App), db.Pool(t, db.Owner)
	const writers, rounds = 4, 25
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			scope := postgres.Scope{TenantID: id.New()}
			next := 0
			events := func(n int) (list []outbox.Event) {
				for range n {
					next++
					list = append(list, outbox.Event{TenantID: scope.TenantID, Topic: outbox.TopicWebhooks, Type: events.TypePing,
						Object: map[string]int{"writer": writer, "n": next}})
				}
				return list
			}
			for round := range rounds {
				var ids []uuid.UUID
				err := postgres.InTenant(t.Context(), app, scope, func(tx postgres.Tx) error {
					ids = nil
					batch := &pgx.Batch{}
					batch.Queue("SELECT 1")
					for _, n := range []int{1 + round%7, 0, 1, 60} {
						queued, err := outbox.Queue(t.Context(), batch, tx.Now, events(n)...)
						if err != nil {
							return err
						}
						ids = append(ids, queued...)
					}
					if batch.Len() != 4 {
						return fmt.Errorf("%d statements for three lists", batch.Len())
					}
					return tx.SendBatch(t.Context(), batch).Close()
				})
				if err != nil || !slices.IsSortedFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }) {
					t.Errorf("%v, ids %v", err, ids)
				}
			}
		})
	}
	all.Wait()
	rows, err := owner.Query(t.Context(), `SELECT o.writer, o.n FROM apipay.outbox_events,
		json_to_record(convert_from(payload, 'UTF8')::json #> '{data,object}') AS o(writer int, n int) ORDER BY seq`)
	require.NoError(t, err)
	var last [writers]int
	var writer, n int
	_, err = pgx.ForEachRow(rows, []any{&writer, &n}, func() error {
		last[writer]++
		require.Equal(t, last[writer], n)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, last[0], rounds*60)
}

func TestAudit(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	admin, owner := db.Pool(t, db.Admin), db.Pool(t, db.Owner)
	require.NoError(t, postgres.InSupport(t.Context(), admin, postgres.AllTenants, func(tx postgres.Tx) error {
		return outbox.Audit(t.Context(), tx, outbox.AuditEntry{
			TenantID: outbox.Platform, Livemode: true, Actor: "ann", Role: "admin", Action: "tenant.create",
			Target: "tnt_x", RequestID: "req_1", IP: "192.0.2.1", Changes: map[string]any{"name": "Ünïcode"},
		})
	}))
	var n int
	require.NoError(t, owner.QueryRow(t.Context(), `SELECT count(*) FROM apipay.audit_log WHERE actor = 'ann' AND changes->>'name' = 'Ünïcode'`).Scan(&n))
	require.Equal(t, 1, n)
	var payload []byte
	require.NoError(t, owner.QueryRow(t.Context(), `SELECT payload FROM apipay.outbox_events WHERE topic = $1`, outbox.TopicAudit).Scan(&payload))
	_, err := events.ParseStrict(payload)
	require.NoError(t, err, "%s", payload)
}
