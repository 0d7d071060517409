package payments_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/apidoc/apidoctest"
	"apipay.io/hub/services/payment-api/internal/auth"
	"apipay.io/hub/services/payment-api/internal/gateway"
	"apipay.io/hub/services/payment-api/internal/gateway/sandbox"
	"apipay.io/hub/services/payment-api/internal/payments"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 15 * time.Second

// rounds is how often a race is run; SOAK_ROUNDS multiplies it.
func rounds(n int) int {
	if factor, err := strconv.Atoi(os.Getenv("SOAK_ROUNDS")); err == nil && factor > 0 {
		return n * factor
	}
	return n
}

// testBundle is one database with the routes served over real HTTP.
type testBundle struct {
	t       testing.TB
	db      *testdb.DB
	owner   *pgxpool.Pool
	pool    *pgxpool.Pool
	service *payments.Service
	server  *httptest.Server
	// a and b are two tenants.
	a, b uuid.UUID
}

// moneyOnly has no methods for the routes of other packages.
type moneyOnly struct {
	*payments.Service
	elsewhere
}

type elsewhere struct{ api.Server }

type option func(*payments.Deps)

func withConfig(change func(*payments.Config)) option {
	return func(d *payments.Deps) { change(&d.Config) }
}

func withGateway(gw func(gateway.Gateway) gateway.Gateway) option {
	return func(d *payments.Deps) { d.Gateways[false] = gw(d.Gateways[false]) }
}

// withSandboxOn gives the sandbox a pool of its own.
func withSandboxOn(pool *pgxpool.Pool) option {
	return func(d *payments.Deps) { d.Gateways[false] = sandbox.New(pool) }
}

// withQuickGateway shortens every wait on the gateway, so that a case with an unknown outcome takes a second.
func withQuickGateway() option {
	return withConfig(func(c *payments.Config) { c.GatewayTimeout = 700 * time.Millisecond })
}

func setup(t *testing.T, options ...option) *testBundle {
	t.Helper()
	return newBundle(t, options...)
}

func newBundle(t testing.TB, options ...option) *testBundle {
	t.Helper()
	return newBundleOn(t, testdb.New(t), options...)
}

func newBundleOn(t testing.TB, db *testdb.DB, options ...option) *testBundle {
	t.Helper()
	b := &testBundle{t: t, db: db, owner: db.Pool(t, db.Owner), pool: appPool(t, db, 8), a: id.New(), b: id.New()}
	for _, tenant := range []uuid.UUID{b.a, b.b} {
		b.exec(`INSERT INTO apipay.tenants (id, name) VALUES ($1, 'tenant')`, tenant)
	}
	b.service, b.server = b.serve(b.pool, options...)
	return b
}

func appPool(t testing.TB, db *testdb.DB, size int32) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(db.App, postgres.Options{MaxConns: size})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// serve makes one more replica of the service.
func (b *testBundle) serve(pool *pgxpool.Pool, options ...option) (*payments.Service, *httptest.Server) {
	b.t.Helper()
	cursors, err := httpapi.NewCursors([]byte("0123456789abcdef"))
	require.NoError(b.t, err)
	deps := payments.Deps{
		Pool:     pool,
		Gateways: map[bool]gateway.Gateway{false: sandbox.New(pool)},
		Cursors:  cursors,
		Log:      slog.New(slog.DiscardHandler),
		Config:   payments.DefaultConfig(),
	}
	for _, o := range options {
		o(&deps)
	}
	service := payments.New(deps)
	e := httpapi.NewEcho(httpapi.Options{Logger: deps.Log, Map: service.MapError})
	e.Use(b.authenticate)
	api.Register(e, moneyOnly{Service: service}, auth.Require)
	server := httptest.NewServer(apidoctest.Handler(b.t, e))
	b.t.Cleanup(func() {
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		service.Drain(ctx)
	})
	return service, server
}

var everyScope = []string{"payment_intents:read", "payment_intents:write", "refunds:read", "refunds:write"}

// authenticate takes who calls from the test itself: the authentication has tests of its own.
func (b *testBundle) authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		tenant, err := uuid.Parse(c.Request().Header.Get("X-Test-Tenant"))
		if err != nil {
			return httpapi.New(httpapi.CodeAuthenticationFailed, "")
		}
		scopes := everyScope
		if only := c.Request().Header.Get("X-Test-Scopes"); only != "" {
			scopes = strings.Split(only, ",")
		}
		auth.WithPrincipal(c, auth.Principal{
			Scope:  postgres.Scope{TenantID: tenant, Livemode: c.Request().Header.Get("X-Test-Livemode") == "true"},
			Scopes: scopes,
		})
		return next(c)
	}
}

func (b *testBundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.owner.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

func (b *testBundle) count(sql string, args ...any) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.owner.QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

// charges counts the money that the sandbox took for an intent.
func (b *testBundle) charges(intentID string) int {
	b.t.Helper()
	return b.count(`SELECT count(*) FROM apipay.sandbox_charges c JOIN apipay.payment_attempts a ON a.id = c.attempt_id
		WHERE c.kind = 'charge' AND c.status = 'succeeded' AND a.payment_intent_id = $1`, b.uuid(id.PaymentIntent, intentID))
}

func (b *testBundle) uuid(prefix id.Prefix, text string) uuid.UUID {
	b.t.Helper()
	u, err := id.Parse(prefix, text)
	require.NoError(b.t, err)
	return u
}

// told are the types of the events about an object, in order; their versions are 1, 2, 3 and so on.
func (b *testBundle) told(objectID string, topic ...string) []string {
	b.t.Helper()
	topic = append(topic, "apipay.outbound-webhooks.v1")
	rows, err := b.owner.Query(b.t.Context(), `SELECT type, payload FROM apipay.outbox_events
		WHERE topic = $2 AND convert_from(payload, 'UTF8')::jsonb #>> '{data,object,id}' = $1
		ORDER BY seq`, objectID, topic[0])
	require.NoError(b.t, err)
	defer rows.Close()
	types := []string{}
	for version := 1; rows.Next(); version++ {
		var eventType string
		var payload []byte
		require.NoError(b.t, rows.Scan(&eventType, &payload))
		var e struct {
			Data struct{ Object struct{ Version int } }
		}
		require.NoError(b.t, json.Unmarshal(payload, &e))
		require.Equal(b.t, version, e.Data.Object.Version, "%s of %s", eventType, objectID)
		types = append(types, eventType)
	}
	require.NoError(b.t, rows.Err())
	return types
}

// contract holds every event of the database against the contract.
func (b *testBundle) contract() {
	b.t.Helper()
	rows, err := b.owner.Query(b.t.Context(), `SELECT payload FROM apipay.outbox_events`)
	require.NoError(b.t, err)
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var payload []byte
		require.NoError(b.t, rows.Scan(&payload))
		_, err := events.ParseStrict(payload)
		require.NoError(b.t, err, string(payload))
	}
	require.NoError(b.t, rows.Err())
	require.NotZero(b.t, n)
}

// travel moves every lease, due time and end of life back: that much time passes at once.
func (b *testBundle) travel(d time.Duration) {
	b.t.Helper()
	b.exec(`UPDATE apipay.payment_attempts SET lease_until = lease_until - $1::interval,
		next_check_at = next_check_at - $1::interval, checker_until = checker_until - $1::interval`, d)
	b.exec(`UPDATE apipay.idempotency_keys SET locked_until = locked_until - $1::interval, expires_at = expires_at - $1::interval`, d)
}

// reconciling runs the reconciler until the test ends.
func (b *testBundle) reconciling(service *payments.Service) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	loop := ops.NewHealth().Loop("reconciler", time.Minute)
	go func() { done <- service.RunReconciler(ctx, loop) }()
	b.t.Cleanup(func() {
		cancel()
		require.NoError(b.t, <-done)
	})
}

// becomes waits until the intent has the status.
func (c caller) becomes(intentID, status string) answer {
	c.b.t.Helper()
	var last answer
	c.b.until(func() bool {
		last = c.get(intents + "/" + intentID)
		return last.status == 200 && last.str("status") == status
	}, "%s does not become %s", intentID, status)
	return last
}

// until waits for what must happen.
func (b *testBundle) until(happened func() bool, message string, args ...any) {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !happened(); <-tick.C {
		require.True(b.t, time.Now().Before(deadline), append([]any{message}, args...)...)
	}
}

// inParallel runs do n times at the same instant and answers what they answered.
func (b *testBundle) inParallel(n int, do func(i int) (answer, error)) []answer {
	b.t.Helper()
	answers, errs := make([]answer, n), make([]error, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			answers[i], errs[i] = do(i)
		})
	}
	close(start)
	all.Wait()
	for i := range n {
		require.NoError(b.t, errs[i])
		require.Less(b.t, answers[i].status, 500, answers[i].raw)
	}
	return answers
}

// statuses counts answers by status.
func statuses(answers []answer) map[int]int {
	n := map[int]int{}
	for _, a := range answers {
		n[a.status]++
	}
	return n
}
