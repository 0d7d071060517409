package dispatch

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/postgres"
)

// bulk makes deliveries of the endpoints in turn. due is when they are, from now.
func (b *testBundle) bulk(n int, endpoints []uuid.UUID, status, due string) {
	b.t.Helper()
	b.exec(`WITH e AS MATERIALIZED (
		    SELECT apipay.uuid7_beside(apipay.uuid7_floor(now() - n * interval '1 millisecond')) AS event_id, n FROM generate_series(1, $2::int) n
		), w AS (
		    INSERT INTO apipay.webhook_events (event_id, tenant_id, livemode, type, body, kafka_topic, kafka_partition, kafka_offset, endpoints_matched, event_created_at)
		    SELECT event_id, $1, false, 'ping', convert_to(repeat('x', 100), 'UTF8'), 't', 0, n, 1, now() FROM e
		)
		INSERT INTO apipay.outbound_webhook_deliveries (event_id, endpoint_id, id, tenant_id, livemode, event_type, status, next_attempt_at, delivered_at)
		SELECT event_id, ($3::uuid[])[1 + n % cardinality($3::uuid[])], gen_random_uuid(), $1, false, 'ping', $4::text,
		    CASE WHEN $4 = 'PENDING' THEN now() + $5::interval - n * interval '1 millisecond' END, CASE WHEN $4 = 'DELIVERED' THEN now() END
		FROM e`, b.tenant, n, endpoints, status, due)
}

// claimPages are the pages that a claim touches per endpoint asked for, and how many it claims. It is rolled back.
func (b *testBundle) claimPages(d *Dispatcher, endpoints []uuid.UUID) (pages float64, got int) {
	b.t.Helper()
	ctx := b.t.Context()
	rollBack := errors.New("roll back")
	keys, priorities, wants := make([]int64, len(endpoints)), make([]int16, len(endpoints)), make([]int32, len(endpoints))
	for i, endpointID := range endpoints {
		keys[i], wants[i] = lockKey(endpointID), 4
	}
	err := postgres.InWorker(ctx, d.pool, func(tx postgres.Tx) error {
		if _, err := tx.Exec(ctx, lockEndpoints, endpoints, keys); err != nil {
			return err
		}
		var text []byte
		err := tx.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "+claimQuery, endpoints, priorities, wants, 4, time.Minute, probeEvery, int64(1000)).Scan(&text)
		if err != nil {
			return err
		}
		var plans []struct {
			Plan struct {
				Hit  int     `json:"Shared Hit Blocks"`
				Read int     `json:"Shared Read Blocks"`
				Rows float64 `json:"Actual Rows"`
			}
		}
		if err := json.Unmarshal(text, &plans); err != nil {
			return err
		}
		pages = float64(plans[0].Plan.Hit+plans[0].Plan.Read) / float64(len(endpoints))
		got = int(plans[0].Plan.Rows) - len(endpoints)
		return rollBack
	})
	require.ErrorIs(b.t, err, rollBack)
	b.t.Logf("%d endpoints, %d claimed: %.0f pages each", len(endpoints), got, pages)
	return pages, got
}

// E8: what a claim reads is bounded by what it asks for, however the rows lie: many delivered, many due for one endpoint, many
// of endpoints that are held or full, many not due yet.
func TestPlans_AClaimReadsNoMoreThanItAsksFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.dispatcher()
	some := func(n int) (ids []uuid.UUID) {
		for range n {
			endpointID, _ := b.endpoint("https://receiver.example/")
			ids = append(ids, endpointID)
		}
		return ids
	}
	const rows = 12_000
	one, few, later, held, full, disabled := some(1), some(16), some(4), some(64), some(4), some(4)
	b.bulk(200, few, "PENDING", "0s")
	b.claimPages(d, few) // which reads the catalogue once
	small, got := b.claimPages(d, few)
	require.Equal(t, 4*len(few), got)

	b.bulk(rows, few, "DELIVERED", "0s")
	b.bulk(rows, one, "PENDING", "0s")
	b.bulk(rows, later, "PENDING", "1 hour")
	b.bulk(rows, held, "PENDING", "0s")
	b.bulk(rows, full, "PENDING", "0s")
	b.bulk(rows, disabled, "PENDING", "0s")
	b.exec(`INSERT INTO apipay.webhook_endpoint_states (endpoint_id, tenant_id, livemode, breaker_opened_at, next_probe_at, counted_from)
		SELECT id, tenant_id, livemode, now(), now() + interval '20 seconds', enabled_at FROM apipay.webhook_endpoints WHERE id = ANY($1)`, held)
	b.exec(`UPDATE apipay.outbound_webhook_deliveries d SET lease_token = gen_random_uuid(), lease_until = now() + interval '1 minute'
		FROM (SELECT event_id, endpoint_id, row_number() OVER (PARTITION BY endpoint_id) AS n FROM apipay.outbound_webhook_deliveries WHERE endpoint_id = ANY($1)) x
		WHERE d.event_id = x.event_id AND d.endpoint_id = x.endpoint_id AND x.n <= 4`, full)
	b.exec(`UPDATE apipay.webhook_endpoints SET status = 'disabled', disabled_reason = 'merchant' WHERE id = ANY($1)`, disabled)

	for _, test := range []struct {
		name      string
		endpoints []uuid.UUID
		got       int
		most      float64
	}{
		{"many delivered", few, 4 * len(few), 2 * small},
		{"many due for one", one, 4, 2 * small},
		{"many not due yet", later, 0, small},
		{"many held", held, 0, small},
		{"many full", full, 0, small},
		{"many of disabled ones", disabled, 0, small},
	} {
		t.Run(test.name, func(t *testing.T) {
			pages, got := b.claimPages(d, test.endpoints)
			require.Equal(t, test.got, got)
			require.LessOrEqual(t, pages, test.most)
		})
	}
}
