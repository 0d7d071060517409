package api

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
)

// queryKeeper keeps the last query that reads a table.
type queryKeeper struct {
	mu    sync.Mutex
	table string
	sql   string
	args  []any
}

func (k *queryKeeper) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	if strings.Contains(data.SQL, k.table) && strings.Contains(data.SQL, "LIMIT") {
		k.sql, k.args = data.SQL, data.Args
	}
	return ctx
}

func (k *queryKeeper) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// plan is a node of EXPLAIN's JSON.
type plan struct {
	NodeType string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Rechecks float64 `json:"Rows Removed by Index Recheck"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []plan  `json:"Plans"`
}

// touched counts the rows of a table's partitions that were read, those too that were thrown away.
func (p plan) touched(table string) (rows float64) {
	if strings.HasPrefix(p.Relation, table) {
		rows = (p.Rows + p.Removed + p.Rechecks) * max(p.Loops, 1)
	}
	for _, child := range p.Plans {
		rows += child.touched(table)
	}
	return rows
}

// A page never reads the many to show the few, even where nothing matches: judged by the rows that the plan touched, not by time. One tenant has nearly everything, none of it RETRYING; another has one delivery.
func TestListDeliveries_Plans(t *testing.T) {
	t.Parallel()
	b := setup(t)
	busy, quiet := b.endpoint(t, b.a), b.endpoint(t, b.a)
	other := b.endpoint(t, b.b)
	b.bulk(t, b.a, busy, 6_000, "DELIVERED")
	b.bulk(t, b.a, quiet, 3_000, "FAILED")
	b.bulk(t, b.b, other, 3_000, "RETRYING")
	b.bulk(t, b.b, other, 50, "PENDING")
	b.exec(t, `ANALYZE apipay.outbound_webhook_deliveries`)
	b.exec(t, `ANALYZE apipay.webhook_endpoints`)

	keeper := &queryKeeper{table: "apipay.outbound_webhook_deliveries"}
	config, err := pgxpool.ParseConfig(b.db.Admin)
	require.NoError(t, err)
	config.ConnConfig.Tracer = keeper
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b.url = b.serve(t, pool, "")

	tenant := func(u uuid.UUID) url.Values { return url.Values{"tenant": {id.Format(id.Tenant, u)}} }
	endpoint := func(u uuid.UUID) url.Values { return url.Values{"endpoint": {id.Format(id.Endpoint, u)}} }
	for _, c := range []struct {
		token string
		where url.Values
	}{
		{viewerToken, url.Values{}}, {viewerToken, tenant(b.a)}, {viewerToken, tenant(b.b)},
		{viewerToken, endpoint(busy)}, {viewerToken, endpoint(quiet)}, {confinedViewerToken, url.Values{}},
		{confinedViewerToken, endpoint(other)},
		{viewerToken, url.Values{"status": {"FAILED"}}}, {viewerToken, url.Values{"status": {"RETRYING"}}},
		{viewerToken, with(tenant(b.a), "RETRYING")}, {viewerToken, with(tenant(b.b), "FAILED")},
		{confinedViewerToken, url.Values{"status": {"RETRYING"}}},
		{viewerToken, with(endpoint(busy), "FAILED")}, {viewerToken, with(endpoint(busy), "RETRYING")},
		{viewerToken, with(endpoint(other), "FAILED")},
		{viewerToken, url.Values{"status": {"PENDING"}}}, {viewerToken, with(tenant(b.a), "PENDING")},
		{viewerToken, with(endpoint(busy), "PENDING")}, {confinedViewerToken, url.Values{"status": {"PENDING"}}},
	} {
		b.ok(t, c.token, 200, "GET", "/admin/v1/webhook-deliveries?limit=10&"+c.where.Encode(), nil)
		touched, text := b.explain(t, pool, keeper, c.token == confinedViewerToken)
		most := 1500.0
		if c.where.Get("status") == "PENDING" {
			most = 4000 // read whole from the small index of all that is due
		}
		require.Less(t, touched, most, "%s %s\n%s", c.token, c.where.Encode(), text)
	}
}

func with(values url.Values, status string) url.Values {
	values.Set("status", status)
	return values
}

// explain runs the kept query again as the same reader and returns how many deliveries it touched.
func (b *testBundle) explain(t *testing.T, pool *pgxpool.Pool, keeper *queryKeeper, confined bool) (float64, string) {
	t.Helper()
	keeper.mu.Lock()
	sql, args := keeper.sql, keeper.args
	keeper.mu.Unlock()
	require.NotEmpty(t, sql)
	scope := "*"
	if confined {
		scope = b.a.String()
	}
	var text string
	require.NoError(t, postgres.InSupport(t.Context(), pool, scope, func(tx postgres.Tx) error {
		return tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+sql, args...).Scan(&text)
	}))
	var top []struct{ Plan plan }
	require.NoError(t, json.Unmarshal([]byte(text), &top))
	return top[0].Plan.touched("outbound_webhook_deliveries"), text
}

// bulk makes n deliveries of the last ten days.
func (b *testBundle) bulk(t *testing.T, tenant, endpoint uuid.UUID, n int, status string) {
	t.Helper()
	b.exec(t, `INSERT INTO apipay.outbound_webhook_deliveries (event_id, endpoint_id, id, tenant_id, livemode, event_type, status, next_attempt_at,
		    delivered_at, failed_at, failure_reason)
		SELECT e.id, $2, apipay.uuid7_beside(e.id), $1, false, 'payment_intent.succeeded', $4,
		    CASE WHEN $4 IN ('PENDING', 'RETRYING') THEN now() END, CASE WHEN $4 = 'DELIVERED' THEN now() END,
		    CASE WHEN $4 = 'FAILED' THEN now() END, CASE WHEN $4 = 'FAILED' THEN 'expired' END
		FROM generate_series(1, $3::int) n
		CROSS JOIN LATERAL (SELECT apipay.uuid7_beside(apipay.uuid7_floor(now() - n * interval '10 days' / $3::int)) AS id) e`, tenant, endpoint, n, status)
}
