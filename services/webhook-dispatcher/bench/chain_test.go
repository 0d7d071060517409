//go:build bench

// Package bench measures the whole chain: outbox rows, relay, broker, dispatcher, receiver, recorded result. Relay, broker
// and dispatcher are the programs in BENCH_BIN; the receiver is this process.
package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/webhook"
)

// chain is one database, one broker and one receiver.
type chain struct {
	t      testing.TB
	db     *testdb.DB
	super  *pgxpool.Pool
	broker string
	worker string // what relay and dispatcher connect to
	keys   *webhook.Keyset
	json   string
	rx     *receiver
	dir    string
	pids   []int
}

func newChain(t testing.TB) *chain {
	t.Helper()
	db := testdb.New(t)
	text, err := webhook.NewKeysetJSON()
	require.NoError(t, err)
	keys, err := webhook.ParseKeyset(text)
	require.NoError(t, err)
	config, err := pgxpool.ParseConfig(db.Super)
	require.NoError(t, err)
	config.MaxConns = 16
	super, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(super.Close)
	c := &chain{t: t, db: db, super: super, worker: db.Worker, keys: keys, json: text, rx: newReceiver(t), dir: t.TempDir()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	c.broker = "127.0.0.1:" + port
	// In memory: what is measured is not this machine's disk.
	c.start("broker", []string{"devstack", "broker", port, "", c.broker})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", c.broker)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	return c
}

// start runs a program of BENCH_BIN until stop, or the test's end.
func (c *chain) start(name string, program []string, env ...string) (stop func()) {
	c.t.Helper()
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	require.NoError(c.t, err)
	cmd := exec.Command(filepath.Join(os.Getenv("BENCH_BIN"), program[0]), program[1:]...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(c.t, cmd.Start())
	c.pids = append(c.pids, cmd.Process.Pid)
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(16*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // how it ended is in its log
		kill.Stop()
		log.Close()
	})
	c.t.Cleanup(stop)
	return stop
}

func (c *chain) relay() func() {
	return c.start("relay", []string{"outbox-relay"}, "APIPAY_DATABASE_URL="+c.worker, "APIPAY_KAFKA_BROKERS="+c.broker, "APIPAY_OPS_ADDR=127.0.0.1:0")
}

func (c *chain) dispatcher(env ...string) func() {
	return c.start("dispatcher", []string{"webhook-dispatcher"}, append([]string{"APIPAY_DATABASE_URL=" + c.worker, "APIPAY_KAFKA_BROKERS=" + c.broker,
		"APIPAY_OPS_ADDR=127.0.0.1:0", "APIPAY_SECRETS_KEYSET=" + c.json, "APIPAY_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8", "APIPAY_LOG_LEVEL=warn"}, env...)...)
}

func (c *chain) exec(sql string, args ...any) {
	c.t.Helper()
	_, err := c.super.Exec(context.Background(), sql, args...)
	require.NoError(c.t, err)
}

func (c *chain) number(sql string, args ...any) (n int64) {
	c.t.Helper()
	require.NoError(c.t, c.super.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// endpoint makes a tenant with one endpoint at a path of the receiver.
func (c *chain) endpoint(path string) uuid.UUID {
	c.t.Helper()
	tenant, endpoint, secret := id.New(), id.New(), id.New()
	ciphertext, keyID, err := c.keys.Seal(webhook.NewSecret(), webhook.SecretRef{TenantID: tenant, EndpointID: endpoint, ID: secret})
	require.NoError(c.t, err)
	c.exec(`INSERT INTO apipay.tenants (id, name) VALUES ($1, 'merchant')`, tenant)
	c.exec(`INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events, created_at)
		VALUES ($1, $2, false, $3, '{*}', now() - interval '1 minute')`, endpoint, tenant, c.rx.URL+path)
	c.exec(`INSERT INTO apipay.webhook_endpoint_secrets (id, tenant_id, livemode, endpoint_id, ciphertext, key_id)
		VALUES ($1, $2, false, $3, $4, $5)`, secret, tenant, endpoint, ciphertext, int64(keyID))
	return tenant
}

func (c *chain) endpoints(n int, path string) (tenants []uuid.UUID) {
	for range n {
		tenants = append(tenants, c.endpoint(path))
	}
	return tenants
}

const eventType = "payment_intent.succeeded"

// event is an outbox row of about 1 KiB.
func event(tenant uuid.UUID) (eventID uuid.UUID, row []any) {
	eventID = id.New()
	payload := fmt.Sprintf(`{"id":%q,"type":%q,"created":%d,"livemode":false,"api_version":"v1","request":null,"data":{"object":{"id":"pi_x","object":"payment_intent","description":%q}}}`,
		id.Format(id.Event, eventID), eventType, time.Now().Unix(), strings.Repeat("x", 830))
	return eventID, []any{eventID, tenant, false, outbox.TopicWebhooks, outbox.Lane(tenant), eventType, []byte(payload)}
}

var columns = []string{"id", "tenant_id", "livemode", "topic", "lane", "type", "payload"}

// load writes n rows at once, for the tenants in turn.
func (c *chain) load(n int, tenants ...uuid.UUID) {
	c.t.Helper()
	for done := 0; done < n; done += 10_000 {
		var rows [][]any
		for i := range min(10_000, n-done) {
			_, row := event(tenants[i%len(tenants)])
			rows = append(rows, row)
		}
		_, err := c.super.CopyFrom(context.Background(), pgx.Identifier{"apipay", "outbox_events"}, columns, pgx.CopyFromRows(rows))
		require.NoError(c.t, err)
	}
}

const insertOne = `INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload) VALUES ($1, $2, $3, $4, $5, $6, $7)`

// pace commits one event after the other at a rate, choosing each one's tenant, and answers when each was committed.
func (c *chain) pace(rate float64, duration time.Duration, tenant func(n int) uuid.UUID) map[string]time.Time {
	c.t.Helper()
	var mu sync.Mutex
	committed := map[string]time.Time{}
	var writers sync.WaitGroup
	started := time.Now()
	for n := 0; ; n++ {
		due := started.Add(time.Duration(float64(n) / rate * float64(time.Second)))
		if due.Sub(started) >= duration {
			break
		}
		time.Sleep(time.Until(due))
		writers.Go(func() {
			eventID, row := event(tenant(n))
			if _, err := c.super.Exec(context.Background(), insertOne, row...); err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			committed[id.Format(id.Event, eventID)] = time.Now()
		})
	}
	writers.Wait()
	return committed
}

// recorded is the number of successful attempts that are in the database.
func (c *chain) recorded() int64 {
	return c.number(`SELECT coalesce(sum(succeeded), 0)::bigint FROM apipay.webhook_endpoint_health`)
}

func (c *chain) until(what string, limit time.Duration, condition func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(20 * time.Millisecond) {
		require.True(c.t, time.Now().Before(deadline), "waiting for %s", what)
	}
}

// receiver notes when the first byte of each event's first request came.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	arrived  map[string]time.Time
	requests map[string]int
	// hanging are requests that wait, and the most there were at once.
	hanging, mostHanging int
}

func newReceiver(t testing.TB) *receiver {
	rx := &receiver{arrived: map[string]time.Time{}, requests: map[string]int{}}
	rx.Server = httptest.NewServer(http.HandlerFunc(rx.serve))
	t.Cleanup(func() { rx.CloseClientConnections(); rx.Close() })
	return rx
}

func (rx *receiver) serve(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	rx.mu.Lock()
	if _, ok := rx.arrived[r.Header.Get("Webhook-Id")]; !ok {
		rx.arrived[r.Header.Get("Webhook-Id")] = now
	}
	rx.requests[r.URL.Path]++
	rx.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body) // an attempt that breaks off is the dispatcher's to tell
	switch r.URL.Path {
	case "/slow":
		time.Sleep(5 * time.Millisecond)
	case "/hang":
		rx.hang(1)
		defer rx.hang(-1)
		select {
		case <-r.Context().Done():
		case <-time.After(30 * time.Second):
		}
	}
}

func (rx *receiver) hang(n int) {
	rx.mu.Lock()
	defer rx.mu.Unlock()
	rx.hanging += n
	rx.mostHanging = max(rx.mostHanging, rx.hanging)
}

func (rx *receiver) got(path string) int {
	rx.mu.Lock()
	defer rx.mu.Unlock()
	return rx.requests[path]
}

// latencies are from commit to arrival, sorted, and how many have not arrived.
func (rx *receiver) latencies(committed map[string]time.Time) (list []time.Duration, missing int) {
	rx.mu.Lock()
	defer rx.mu.Unlock()
	for event, at := range committed {
		if arrived, ok := rx.arrived[event]; ok {
			list = append(list, max(0, arrived.Sub(at)))
		} else {
			missing++
		}
	}
	slices.Sort(list)
	return list, missing
}

func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return time.Hour
	}
	return list[min(len(list)-1, int(q*float64(len(list))))]
}

// cpu is the processor time that the chain's programs, the sessions on its database and this process have used.
func (c *chain) cpu() (sum time.Duration) {
	pids := append([]int{os.Getpid()}, c.pids...)
	entries, err := os.ReadDir("/proc")
	require.NoError(c.t, err)
	for _, entry := range entries {
		// "postgres: role database host(port) state"
		title, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if pid, notANumber := strconv.Atoi(entry.Name()); notANumber == nil && err == nil && strings.Contains(string(title), " "+c.db.Name+" ") {
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, ticks := range fields[11:13] {
			n, err := strconv.ParseInt(ticks, 10, 64)
			require.NoError(c.t, err)
			sum += time.Duration(n) * 10 * time.Millisecond // USER_HZ is 100
		}
	}
	return sum
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	return strings.Fields(string(text))[0]
}

// size is a number of rows, times BENCH_SCALE.
func size(n int) int {
	if scale, err := strconv.ParseFloat(os.Getenv("BENCH_SCALE"), 64); err == nil {
		return int(float64(n) * scale)
	}
	return n
}
