package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/kafkaconn"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/proto/events"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		if err := runAsProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// testBundle is a database of one test with a tenant in it, seen as the owner.
type testBundle struct {
	t      testing.TB
	db     *testdb.DB
	owner  *pgxpool.Pool
	keyset *webhook.Keyset
	config Config
	tenant uuid.UUID
}

func setup(t testing.TB) *testBundle {
	t.Helper()
	db := testdb.New(t)
	keysetJSON, err := webhook.NewKeysetJSON()
	require.NoError(t, err)
	keyset, err := webhook.ParseKeyset(keysetJSON)
	require.NoError(t, err)
	b := &testBundle{t: t, db: db, owner: db.Pool(t, db.Owner), keyset: keyset, config: Config{
		DatabaseURL: db.Worker,
		// Nobody listens there: the dispatcher runs without Kafka, and records are handed to it.
		Config:              kafkaconn.Config{Brokers: []string{"127.0.0.1:1"}},
		RetrySchedule:       []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 12 * time.Hour},
		Timeout:             10 * time.Second,
		Lease:               time.Minute,
		EndpointConcurrency: 4,
		AllowCIDRs:          "127.0.0.0/8,::1/128",
		SecretsKeyset:       keysetJSON,
		Retention:           90 * 24 * time.Hour,
	}}
	b.tenant = b.newTenant()
	return b
}

func (b *testBundle) exec(sql string, args ...any) int64 {
	b.t.Helper()
	tag, err := b.owner.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
	return tag.RowsAffected()
}

// scan reads one row.
func (b *testBundle) scan(sql string, args []any, dest ...any) {
	b.t.Helper()
	require.NoError(b.t, b.owner.QueryRow(b.t.Context(), sql, args...).Scan(dest...))
}

func (b *testBundle) count(sql string, args ...any) (n int) {
	b.t.Helper()
	b.scan(sql, args, &n)
	return n
}

func (b *testBundle) newTenant() uuid.UUID {
	b.t.Helper()
	tenantID := id.New()
	b.exec(`INSERT INTO apipay.tenants (id, name) VALUES ($1, 'merchant')`, tenantID)
	return tenantID
}

// endpoint is one of the test's tenant, created a minute ago.
func (b *testBundle) endpoint(url string, enabledEvents ...string) (uuid.UUID, webhook.Secret) {
	b.t.Helper()
	return b.endpointOf(b.tenant, url, enabledEvents...)
}

func (b *testBundle) endpointOf(tenant uuid.UUID, url string, enabledEvents ...string) (uuid.UUID, webhook.Secret) {
	b.t.Helper()
	if enabledEvents == nil {
		enabledEvents = []string{"*"}
	}
	endpointID := id.New()
	b.exec(`INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events, created_at)
		VALUES ($1, $2, false, $3, $4, now() - interval '1 minute')`, endpointID, tenant, url, enabledEvents)
	return endpointID, b.addSecret(tenant, endpointID, nil)
}

func (b *testBundle) addSecret(tenant, endpointID uuid.UUID, expires *time.Time) webhook.Secret {
	b.t.Helper()
	secret, ref := webhook.NewSecret(), webhook.SecretRef{TenantID: tenant, EndpointID: endpointID, ID: id.New()}
	ciphertext, keyID, err := b.keyset.Seal(secret, ref)
	require.NoError(b.t, err)
	b.exec(`INSERT INTO apipay.webhook_endpoint_secrets (id, tenant_id, livemode, endpoint_id, ciphertext, key_id, expires_at)
		VALUES ($1, $2, false, $3, $4, $5, $6)`, ref.ID, tenant, endpointID, ciphertext, int64(keyID), expires)
	return secret
}

// dispatcher makes one more replica, which is not running.
func (b *testBundle) dispatcher() *Dispatcher {
	b.t.Helper()
	pool, err := postgres.Open(b.config.DatabaseURL, postgres.Options{ApplicationName: "dispatcher-test", MaxConns: MaxConns})
	require.NoError(b.t, err)
	b.t.Cleanup(pool.Close)
	log := slog.New(slog.NewJSONHandler(testWriter{b.t}, nil))
	d, err := New(b.config, pool, ops.NewHealth(), log)
	require.NoError(b.t, err)
	b.t.Cleanup(d.client.Close)
	return d
}

// run starts a dispatcher and returns what stops it; it is stopped at the end of the test in any case.
func (b *testBundle) run(d *Dispatcher) (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				require.NoError(b.t, err)
			case <-time.After(16 * time.Second):
				require.Fail(b.t, "the dispatcher did not stop within 15 s")
			}
		})
	}
	b.t.Cleanup(stop)
	return stop
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	if testing.Verbose() {
		fmt.Print(string(p))
	}
	return len(p), nil
}

// record is one event of the tenant, as it would come from Kafka.
func (b *testBundle) record(tenant uuid.UUID, eventType string, object map[string]any) kafka.Message {
	return recordAt(tenant, eventType, object, time.Now(), false)
}

func recordAt(tenant uuid.UUID, eventType string, object map[string]any, at time.Time, livemode bool) kafka.Message {
	eventID := id.NewAt(at, 0)
	if object == nil {
		object = map[string]any{"id": id.Format(id.PaymentIntent, id.New()), "object": "payment_intent"}
	}
	value, err := json.Marshal(map[string]any{
		"id": id.Format(id.Event, eventID), "type": eventType, "created": at.Unix(), "livemode": livemode, "api_version": "v1",
		"request": nil, "data": map[string]any{"object": object},
	})
	if err != nil {
		panic(err)
	}
	return kafka.Message{
		Topic: events.TopicOutboundWebhooks, Key: []byte(tenant.String()), Value: value,
		Headers: []kafka.Header{{Key: "event-id", Value: []byte(id.Format(id.Event, eventID))}, {Key: "event-type", Value: []byte(eventType)}},
		Offset:  int64(eventID[15]) + int64(eventID[14])<<8 + int64(eventID[13])<<16,
	}
}

func (b *testBundle) publish(d *Dispatcher, eventType string) uuid.UUID {
	b.t.Helper()
	record := b.record(b.tenant, eventType, nil)
	require.NoError(b.t, d.materialize(b.t.Context(), []kafka.Message{record}))
	a, refused := read(record)
	require.Nil(b.t, refused)
	return a.eventID
}

const succeeded = events.TypePaymentIntentSucceeded

// travel moves every due time, lease and failing_since back: as much later it is then.
func (b *testBundle) travel(by time.Duration) {
	b.t.Helper()
	b.exec(`UPDATE apipay.outbound_webhook_deliveries SET next_attempt_at = next_attempt_at - $1::interval,
		lease_until = lease_until - $1::interval, due_since = due_since - $1::interval`, by)
	b.exec(`UPDATE apipay.webhook_endpoint_states SET failing_since = failing_since - $1::interval, last_failure_at = last_failure_at - $1::interval,
		last_success_at = last_success_at - $1::interval, breaker_opened_at = breaker_opened_at - $1::interval,
		next_probe_at = next_probe_at - $1::interval`, by)
}

const eventually = 15 * time.Second

func (b *testBundle) eventually(condition func() bool, what string, args ...any) {
	b.t.Helper()
	// Polled here and not by require.Eventually, whose goroutine may not fail the test.
	for deadline := time.Now().Add(eventually); !condition(); {
		require.True(b.t, time.Now().Before(deadline), append([]any{what}, args...)...)
		<-time.After(10 * time.Millisecond)
	}
}

type deliveryRow struct {
	Status        string
	AttemptCount  int
	NextIn        *float64
	FailureReason *string
	LeaseUntil    *time.Time
	DeliveredAt   *time.Time
	Priority      int
}

func (b *testBundle) delivery(eventID, endpointID uuid.UUID) (r deliveryRow) {
	b.t.Helper()
	rows, err := b.owner.Query(b.t.Context(), `SELECT status, attempt_count, extract(epoch FROM next_attempt_at - now())::float8 AS next_in,
		failure_reason, lease_until, delivered_at, priority
		FROM apipay.outbound_webhook_deliveries WHERE event_id = $1 AND endpoint_id = $2`, eventID, endpointID)
	require.NoError(b.t, err)
	r, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[deliveryRow])
	if !errors.Is(err, pgx.ErrNoRows) { // it comes with the event
		require.NoError(b.t, err)
	}
	return r
}

func (b *testBundle) waitFor(eventID, endpointID uuid.UUID, status string, attempts int) deliveryRow {
	b.t.Helper()
	var r deliveryRow
	b.eventually(func() bool {
		r = b.delivery(eventID, endpointID)
		return r.Status == status && r.AttemptCount == attempts && r.LeaseUntil == nil
	}, "waiting for %s after %d attempts", status, attempts)
	return r
}

type attemptRow struct {
	Number     int
	Trigger    string
	Outcome    string
	StatusCode *int
	ErrorClass *string
	Excerpt    *string
	RemoteIP   *string
	LatencyMs  *int
	Phases     map[string]int
}

func (b *testBundle) attempts(eventID uuid.UUID) (list []attemptRow) {
	b.t.Helper()
	rows, err := b.owner.Query(b.t.Context(), `SELECT number, trigger, outcome, status_code, error_class, response_excerpt, remote_ip, latency_ms, phases_ms
		FROM apipay.outbound_webhook_attempts WHERE event_id = $1 ORDER BY number, created_at`, eventID)
	require.NoError(b.t, err)
	defer rows.Close()
	for rows.Next() {
		var r attemptRow
		require.NoError(b.t, rows.Scan(&r.Number, &r.Trigger, &r.Outcome, &r.StatusCode, &r.ErrorClass, &r.Excerpt, &r.RemoteIP, &r.LatencyMs, &r.Phases))
		list = append(list, r)
	}
	require.NoError(b.t, rows.Err())
	return list
}

// receiver keeps what it got.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []received
	answer   func(n int, w http.ResponseWriter, r *http.Request)
}

type received struct {
	header http.Header
	body   []byte
	at     time.Time
}

func newReceiver(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	rx := &receiver{answer: answer}
	rx.Server = httptest.NewServer(http.HandlerFunc(rx.serve))
	t.Cleanup(rx.Close)
	return rx
}

func (rx *receiver) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	rx.mu.Lock()
	rx.requests = append(rx.requests, received{r.Header.Clone(), body, time.Now()})
	n := len(rx.requests)
	rx.mu.Unlock()
	if rx.answer != nil {
		rx.answer(n, w, r)
	}
}

func (rx *receiver) got() []received {
	rx.mu.Lock()
	defer rx.mu.Unlock()
	return append([]received(nil), rx.requests...)
}

func status(code int) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func asBatch(records ...kafka.Message) []kafka.Message { return records }
