package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

var services = []string{"payment-api", "admin-api", "outbox-relay", "webhook-dispatcher"}

// TestSkew (B90, B96) runs this release and the next one side by side, under traffic that must not notice: the next schema is
// applied while reports hold their locks and snapshots, its migrator is killed in the middle of an index, both releases' services
// work on the one schema and on each other's events, the pods alone are rolled back, and at last the schema asks for the next
// code and this release's services refuse to start. SKEW=1 switches it on.
func TestSkew(t *testing.T) {
	if os.Getenv("SKEW") == "" {
		t.Skip("SKEW is not set: see the Makefile")
	}
	next := buildNext(t)
	h := start(t, "RELAYS=2", "DISPATCHERS=2", "PAYMENT_APIS=2")
	for _, service := range services {
		h.refuses(t, next, service, "the schema has version 1 and this release needs 2")
	}
	rx := listen(t)
	shops := h.shops(t, rx, 6)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	old := &traffic{}
	var all sync.WaitGroup
	all.Go(func() {
		every(ctx, 100*time.Millisecond, func(n int) { old.buy(t.Context(), shops[n%len(shops)]) })
	})

	h.expand(t, next)
	expanded := old.quantile(0.99)

	mixed := h.mix(t, next, shops)
	// Only the pods go back; the schema stays.
	bought := h.count(t, `SELECT count(*) FROM apipay.payment_intents`)
	h.wait(t, func() bool { return h.count(t, `SELECT count(*) FROM apipay.payment_intents`) > bought+30 }, "purchases after the roll-back")
	stop()
	all.Wait()
	old.requireNoFailure(t)

	h.eventually(t, 30*time.Second, 0, unpublished)
	h.eventually(t, 30*time.Second, 0, undone)
	require.Zero(t, h.count(t, undelivered))
	h.requireSettled(t, old.bought+mixed.bought)
	require.Zero(t, h.count(t, `SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE attempt_count <> 1`))
	told := 0
	for _, s := range shops {
		for id, hooks := range rx.at(s.path) {
			require.Len(t, hooks, 1, "POSTs of %s", id)
			if strings.Contains(string(hooks[0].body), `"channel":"web"`) {
				told++
			}
		}
	}
	require.Positive(t, told, "events of the next release, with a member that this one does not know")

	_, err := h.owner.Exec(t.Context(), `UPDATE apipay.schema_info SET min_code = 2`)
	require.NoError(t, err)
	for _, service := range services {
		h.refuses(t, filepath.Join(repository, "bin"), service, "the schema asks for code version 2 or newer and this release is 1")
		h.extra(t, service, filepath.Join(next, service))
	}
	fmt.Printf("skew: %d calls to this release and %d to the next, 0 failed (p50 %s, p99 %s until the schema was expanded); a migration gave up for a report and "+
		"was repeated, its migrator killed in the middle of an index, no invalid index; %d events of the next release delivered; "+
		"4 services refused an older schema and 4 a newer min_code; load %s\n", old.calls, mixed.calls, old.quantile(0.5), expanded, told, loadAverage())
}

const invalidIndexes = `SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE NOT i.indisvalid AND c.relnamespace = 'apipay'::regnamespace`

// expand applies the next schema with everything in its way.
func (h *hub) expand(t *testing.T, next string) {
	t.Helper()
	const version = `SELECT version FROM apipay.schema_info`
	report := h.report(t, pgx.TxOptions{}, `SELECT count(*) FROM apipay.payment_intents`)
	blocked := startMigrate(t, filepath.Join(next, "migrate"), h.Postgres["owner"])
	require.Error(t, blocked.wait(), "the report holds the table")
	require.Equal(t, 1, strings.Count(blocked.out.String(), "\n"), blocked.out.String())
	require.Contains(t, blocked.out.String(), "run it again")
	require.Equal(t, 1, h.count(t, version))
	require.Zero(t, h.count(t, `SELECT count(*) FROM information_schema.columns WHERE table_name = 'payment_intents' AND column_name = 'channel'`))
	require.NoError(t, report.Rollback(t.Context()))

	// A report that has a snapshot and no lock on the table lets the column in and holds up the index.
	report = h.report(t, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, `SELECT count(*) FROM apipay.tenants`)
	killed := startMigrate(t, filepath.Join(next, "migrate"), h.Postgres["owner"])
	h.eventually(t, 30*time.Second, 1, `SELECT count(*) FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting%'`)
	killed.kill()
	again := startMigrate(t, filepath.Join(next, "migrate"), h.Postgres["owner"])
	require.Equal(t, 1, h.count(t, invalidIndexes), "the killed one's, still in the making")
	require.NoError(t, report.Rollback(t.Context()))
	require.NoError(t, again.wait(), "%s", again.out.String())
	require.Equal(t, 2, h.count(t, version))
	require.Zero(t, h.count(t, invalidIndexes))
	require.Equal(t, 1, h.count(t, `SELECT count(*) FROM pg_indexes WHERE indexname = 'payment_intents_by_channel'`))
	require.Equal(t, 1, h.count(t, `SELECT count(*) FROM pg_constraint WHERE conname = 'payment_intents_status_check' AND convalidated AND pg_get_constraintdef(oid) LIKE '%requires_action%'`))
}

// report is a long SELECT of somebody else's.
func (h *hub) report(t *testing.T, options pgx.TxOptions, query string) pgx.Tx {
	t.Helper()
	tx, err := h.owner.BeginTx(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), query).Scan(&n))
	return tx
}

// mix lets a replica of each service of the next release work beside this one's, for as long as 100 purchases through it take.
func (h *hub) mix(t *testing.T, next string, shops []shop) *traffic {
	t.Helper()
	replicas := map[string]*program{}
	for _, service := range services {
		replicas[service] = h.extra(t, service, filepath.Join(next, service))
	}
	staff := newClient(h.Demo.AdminToken, append([]string{replicas["admin-api"].api}, h.URLs.AdminAPI))
	t.Cleanup(staff.close)
	newer := make([]shop, len(shops))
	for i, s := range shops {
		newer[i] = shop{client: newClient(s.token, []string{replicas["payment-api"].api}), path: s.path, secret: s.secret}
		t.Cleanup(newer[i].close)
	}
	mixed := &traffic{}
	for n := range 100 {
		mixed.buy(t.Context(), newer[n%len(newer)])
		mixed.once(t.Context(), staff, http.StatusOK, "GET", "/admin/v1/webhook-deliveries?limit=5", "", nil)
	}
	mixed.requireNoFailure(t)
	require.Equal(t, 100, mixed.bought)
	for _, service := range services {
		require.NoError(t, replicas[service].stop())
	}
	return mixed
}
