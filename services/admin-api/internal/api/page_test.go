package api

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"apipay.io/hub/pkg/id"
)

// Every list shows every row once, also when all of them carry the same time.
func TestLists_IdenticalTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := b.endpoint(t, b.a)
	for range 7 {
		b.ok(t, adminToken, 201, http.MethodPost, "/admin/v1/tenants", map[string]any{"name": "x"})
		b.ok(t, adminToken, 201, http.MethodPost, keysPath(tenantText(b.a)), map[string]any{"livemode": false})
		b.ok(t, supportToken, 201, http.MethodPost, recoveriesPath, map[string]any{"filter": map[string]any{}})
		b.endpoint(t, b.a)
		b.delivery(t, b.a, endpoint, "")
		b.payment(t, b.a, id.New().String(), "")
		b.quarantined(t, b.a)
		b.outboxEvent(t, b.a, parked)
	}
	for _, table := range []string{
		"tenants", "api_keys", "recoveries", "webhook_endpoints", "outbound_webhook_deliveries", "payment_intents", "payment_attempts",
		"quarantined_records", "audit_log",
	} {
		b.exec(t, `UPDATE apipay.`+table+` SET created_at = '2026-11-01T00:00:00.000001Z'`)
	}
	b.exec(t, `UPDATE apipay.outbox_events SET parked_at = '2026-11-01T00:00:00.000001Z' WHERE parked_at IS NOT NULL`)
	for path, least := range map[string]int{
		"/admin/v1/tenants": 9, keysPath(tenantText(b.a)): 7, recoveriesPath: 7, "/admin/v1/webhook-endpoints": 8, deliveriesPath: 7,
		"/admin/v1/payment-intents": 7, "/admin/v1/payment-attempts": 7, "/admin/v1/payment-attempts?status=unknown": 7,
		"/admin/v1/quarantine": 7, "/admin/v1/outbox/parked": 7, "/admin/v1/audit-log": 21,
	} {
		t.Run(path, func(t *testing.T) {
			separator := "?"
			if strings.Contains(path, "?") {
				separator = "&"
			}
			seen := map[string]bool{}
			for cursor := ""; ; {
				page := b.ok(t, viewerToken, 200, http.MethodGet, path+separator+"limit=3"+cursor, nil)
				for _, item := range items(t, page) {
					require.False(t, seen[item["id"].(string)], "shown twice")
					seen[item["id"].(string)] = true
				}
				if page["has_more"] == false {
					break
				}
				cursor = "&cursor=" + page["next_cursor"].(string)
			}
			require.Len(t, seen, least)
			require.Len(t, items(t, b.ok(t, viewerToken, 200, http.MethodGet, path+separator+"limit=100", nil)), least)
		})
	}
}

// Newest first is by the database's time, whatever time an id carries: the clocks of the processes that make ids differ.
func TestLists_NewestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 6 {
		b.payment(t, b.a, id.New().String(), "")
		tenant := b.a
		if i%3 == 2 {
			tenant = b.b
		}
		b.exec(t, `INSERT INTO apipay.audit_log (id, tenant_id, livemode, actor, role, action, target)
			VALUES ($1, $2, false, 'x', 'admin', 'x', 'x')`, id.New(), tenant)
	}
	// The first made is the newest.
	for _, table := range []string{"payment_intents", "payment_attempts", "audit_log"} {
		b.exec(t, `UPDATE apipay.`+table+` x SET created_at = now() - n * interval '1 second'
			FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM apipay.`+table+`) o WHERE o.id = x.id`)
	}
	for _, path := range []string{
		"payment-intents", "payment-intents?tenant=" + tenantText(b.a), "payment-attempts", "payment-attempts?status=unknown",
		"payment-attempts?tenant=" + tenantText(b.a), "audit-log", "audit-log?target=x", "audit-log?tenant=" + tenantText(b.a),
	} {
		for _, token := range []string{viewerToken, confinedToken} {
			separator := "?"
			if strings.Contains(path, "?") {
				separator = "&"
			}
			var times, ids []string
			for cursor := ""; ; {
				page := b.ok(t, token, 200, http.MethodGet, "/admin/v1/"+path+separator+"limit=2"+cursor, nil)
				for _, item := range items(t, page) {
					times, ids = append(times, item["created_at"].(string)), append(ids, item["id"].(string))
				}
				if page["has_more"] == false {
					break
				}
				cursor = "&cursor=" + page["next_cursor"].(string)
			}
			want := 6
			if strings.HasPrefix(path, "audit-log") && (token == confinedToken || strings.Contains(path, "tenant")) {
				want = 4
			}
			require.Len(t, ids, want, path)
			require.True(t, slices.IsSortedFunc(times, func(a, b string) int { return strings.Compare(b, a) }), "%s: %v", path, times)
			require.True(t, slices.IsSorted(ids), "%s: the ids go the other way here", path)
		}
	}
	from := url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339))
	require.Len(t, items(t, b.ok(t, viewerToken, 200, http.MethodGet, "/admin/v1/audit-log?from="+from, nil)), 6)
}

// B28: what a transaction may see does not stay on its connection.
func TestScopes_DoNotStayOnConnections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	config, err := pgxpool.ParseConfig(b.db.Admin)
	require.NoError(t, err)
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b.url = b.serve(t, pool, "")
	var wg sync.WaitGroup
	wrong := make(chan string, 1000)
	for range 10 {
		wg.Go(func() {
			for range 30 {
				token, want := confinedToken, 1
				if rand.IntN(2) == 0 {
					token, want = viewerToken, 2
				}
				// Some end in the middle of a transaction.
				if rand.IntN(10) == 0 {
					_, _ = b.try(t.Context(), token, http.MethodPost, deliveriesPath+"/"+id.Format(id.Delivery, id.New())+"/retry", nil)
				}
				got, err := b.try(t.Context(), token, http.MethodGet, "/admin/v1/tenants", nil)
				if err != nil || got.status != http.StatusOK {
					wrong <- fmt.Sprint(err, got.raw)
					continue
				}
				if n := len(got.body["data"].([]any)); n != want {
					wrong <- fmt.Sprintf("%s sees %d tenants", token, n)
				}
			}
		})
	}
	wg.Wait()
	close(wrong)
	for text := range wrong {
		t.Error(text)
	}
}

func TestFirstID(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		at := time.UnixMicro(rapid.Int64Range(0, 253402300799_000_000).Draw(r, "at"))
		u := id.NewAt(at, uint16(rapid.IntRange(0, 4095).Draw(r, "order")))
		if low := firstIDOf(at); low.String() > u.String() || !id.Time(low).Equal(at.Truncate(time.Millisecond)) {
			r.Fatalf("%s is not at or before %s", low, u)
		}
		next := firstIDFrom(at)
		if id.Time(next).Before(at) || id.Time(next).Sub(at) >= time.Millisecond {
			r.Fatalf("%s is not the first of %s", next, at)
		}
	})
	for _, text := range []string{"0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"} {
		at, err := time.Parse(time.RFC3339Nano, text)
		require.NoError(t, err)
		require.NotPanics(t, func() { firstIDOf(at); firstIDFrom(at) })
	}
	require.Zero(t, firstIDOf(time.Time{}))
}
