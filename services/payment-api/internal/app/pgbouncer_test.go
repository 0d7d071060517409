package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// pgbouncer is a pooler in transaction mode in front of the test's database, with a listener in between that looks for
// warnings of the server.
type pgbouncer struct {
	dsn      string
	warnings *watcher
}

// throughPgbouncer starts one that has size server connections.
func throughPgbouncer(t *testing.T, dsn string, size int) pgbouncer {
	t.Helper()
	program := pgbouncerProgram(t)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	watched := watch(t, u.Host)
	serverHost, serverPort, err := net.SplitHostPort(watched.listener.Addr().String())
	require.NoError(t, err)
	port := freePort(t)

	// The program refuses to run as root, and its files must then be readable for somebody else.
	dir, err := os.MkdirTemp("", "pgbouncer-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	password, _ := u.User.Password()
	users := write("users.txt", fmt.Sprintf("%q %q\n", u.User.Username(), password))
	ini := write("pgbouncer.ini", fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
`, serverHost, serverPort, port, users, size))
	command := exec.Command(program, ini)
	if os.Getuid() == 0 {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	log := &syncBuffer{}
	command.Stdout, command.Stderr = log, log
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	u.Host = net.JoinHostPort("127.0.0.1", port)
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), u.String())
		if err != nil {
			return false
		}
		return conn.Close(t.Context()) == nil
	}, 10*time.Second, 20*time.Millisecond, "%s", log)
	return pgbouncer{dsn: u.String(), warnings: watched}
}

// pgbouncerProgram installs the program where it can. A machine that cannot have it skips the test; CI never does.
func pgbouncerProgram(t *testing.T) string {
	t.Helper()
	find := func() (string, bool) {
		for _, path := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
			if found, err := exec.LookPath(path); err == nil {
				return found, true
			}
		}
		return "", false
	}
	if program, ok := find(); ok {
		return program
	}
	installPgbouncer.Do(func() {
		out, err := exec.Command("../../scripts/install-pgbouncer.sh").CombinedOutput()
		if err != nil {
			t.Logf("installing pgbouncer: %v\n%s", err, out)
		}
	})
	if program, ok := find(); ok {
		return program
	}
	if os.Getenv("CI") != "" {
		t.Fatal("CI needs pgbouncer")
	}
	t.Skip("no pgbouncer on this machine, and it cannot be installed")
	return ""
}

var installPgbouncer sync.Once

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

// watcher forwards connections to the server and counts its warnings about settings outside of a transaction.
type watcher struct {
	listener net.Listener
	seen     atomic.Int64
	bytes    atomic.Int64
	mu       sync.Mutex
	open     []net.Conn
	all      sync.WaitGroup
}

func watch(t *testing.T, target string) *watcher {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &watcher{listener: listener}
	w.all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			w.mu.Lock()
			w.open = append(w.open, client, server)
			w.mu.Unlock()
			w.all.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			w.all.Go(func() { w.answers(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		w.mu.Lock()
		for _, conn := range w.open {
			_ = conn.Close()
		}
		w.mu.Unlock()
		w.all.Wait()
	})
	return w
}

func (w *watcher) answers(client, server net.Conn) {
	defer client.Close()
	warning := []byte("can only be used in transaction blocks")
	buffer := make([]byte, 64<<10)
	kept := 0 // of the chunk before, in case the text spans two
	for {
		n, err := server.Read(buffer[kept:])
		if n > 0 {
			w.bytes.Add(int64(n))
			w.seen.Add(int64(bytes.Count(buffer[:kept+n], warning)))
			if _, err := client.Write(buffer[kept : kept+n]); err != nil {
				return
			}
			tail := min(kept+n, len(warning)-1)
			copy(buffer, buffer[kept+n-tail:kept+n])
			kept = tail
		}
		if err != nil {
			return
		}
	}
}

// B34: every endpoint once, directly and through the pooler: the same answers, and no setting outside of a transaction.
func TestPgbouncer_SameSurface(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pooler := throughPgbouncer(t, b.db.App, 3)
	direct := start(t, b)
	pooled := start(t, b, "APIPAY_DATABASE_URL="+pooler.dsn)
	since := time.Now().Add(-time.Hour)
	one := surface(t, merchant{"http://" + direct.http, b.key(t, b.tenant(t), false)}, since)
	other := surface(t, merchant{"http://" + pooled.http, b.key(t, b.tenant(t), false)}, since)
	require.Equal(t, one, other)
	require.Zero(t, pooler.warnings.seen.Load())
	require.Greater(t, pooler.warnings.bytes.Load(), int64(10_000), "the watcher saw the traffic")

	// The watcher would have seen a warning.
	conn, err := pgx.Connect(t.Context(), pooler.dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "SET LOCAL app.tenant_id = 'x'", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	require.EqualValues(t, 1, pooler.warnings.seen.Load())
}

var volatile = regexp.MustCompile(`_[0-9a-hjkmnp-tv-z]{26}\b|whsec_[A-Za-z0-9+/=]+|"next_cursor":"[^"]+"|"(created|[a-z]+_at)":[0-9]+`)

// surface calls every route once and answers what it said, without what differs from run to run.
func surface(t *testing.T, m merchant, since time.Time) (said []string) {
	t.Helper()
	do := func(method, path string, in any) answer {
		t.Helper()
		a := m.call(t, method, path, in, "Idempotency-Key", fmt.Sprint("k-", len(said)), "X-Request-Id", "same")
		require.Less(t, a.status, 500, "%s %s: %s", method, path, a.body)
		text, err := json.Marshal(a.json)
		require.NoError(t, err)
		route := volatile.ReplaceAllString(path, "_ID")
		said = append(said, fmt.Sprintf("%s %s %d %s", method, route, a.status, volatile.ReplaceAllString(string(text), "_ID")))
		return a
	}
	const get, post, patch, remove = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	first := "/v1/payment-intents/" + do(post, "/v1/payment-intents", body{"amount": 1000, "currency": "EUR", "payment_method": "pm_card_visa",
		"metadata": body{"a": "b"}, "merchant_reference": "r-1"}).str("id")
	do(get, first, nil)
	do(post, first+"/confirm", nil)
	do(post, first+"/confirm", nil) // refused, and the refusal is stored
	refund := do(post, first+"/refunds", body{"amount": 300, "reason": "r"}).str("id")
	do(post, first+"/refunds", body{"amount": 701})
	do(get, "/v1/refunds/"+refund, nil)
	do(get, first+"/refunds", nil)
	declined := "/v1/payment-intents/" + do(post, "/v1/payment-intents", body{"amount": 1, "currency": "USD"}).str("id")
	do(post, declined+"/confirm", body{"payment_method": "pm_card_declined"})
	do(post, declined+"/cancel", nil)
	do(post, "/v1/payment-intents", body{"amount": 5, "currency": "EUR", "payment_method": "pm_card_visa", "confirm": true})
	do(post, "/v1/payment-intents", body{"amount": 5, "currency": "EUR", "merchant_reference": "r-1"}) // taken
	do(get, "/v1/payment-intents?limit=2", nil)
	do(get, "/v1/payment-intents?status=succeeded&currency=EUR", nil)
	endpoint := "/v1/webhook-endpoints/" + do(post, "/v1/webhook-endpoints", body{"url": "https://example.com/hook", "enabled_events": []string{"*"}}).str("id")
	do(get, endpoint, nil)
	do(get, "/v1/webhook-endpoints", nil)
	do(patch, endpoint, body{"description": "d"})
	do(post, endpoint+"/rotate-secret", body{"overlap_seconds": 60})
	do(post, endpoint+"/ping", nil)
	do(get, endpoint+"/deliveries", nil)
	do(post, endpoint+"/recover", body{"since": since.Unix()})
	do(post, endpoint+"/deliveries/whd_00000000000000000000000000/retry", nil)
	events := do(get, "/v1/events?limit=100", nil)
	require.Greater(t, len(events.data()), 8)
	do(get, "/v1/events/"+events.data()[0]["id"].(string), nil)
	do(remove, endpoint, nil)
	do(get, endpoint, nil)
	return said
}

// B28: the pooler has two server connections for 50 clients of alternating tenants; a twentieth of them hang up in
// mid-request.
func TestPgbouncer_SharedConnections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pooler := throughPgbouncer(t, b.db.App, 2)
	p := start(t, b, "APIPAY_DATABASE_URL="+pooler.dsn)
	var merchants [2]merchant
	var markers [2]string
	for i := range merchants {
		merchants[i] = merchant{"http://" + p.http, b.key(t, b.tenant(t), false)}
		markers[i] = "marker-" + uuid.NewString()
		merchants[i].intent(t, markers[i])
	}
	const workers, enough = 50, 12 * time.Second
	operations := soak(10_000 / workers)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(soak(1))*enough)
	defer cancel()
	var foreign, answered, hungUp atomic.Int64
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := 0; i < operations && ctx.Err() == nil; i++ {
				mine := (worker + i) % 2
				m, theirs := merchants[mine], markers[1-mine]
				if (worker*7+i)%20 == 0 {
					if hangUp(t, m, time.Duration(1+i%8)*time.Millisecond) {
						hungUp.Add(1)
					}
					continue
				}
				var a answer
				var err error
				if i%3 == 0 {
					a, err = m.try(t, http.MethodPost, "/v1/payment-intents",
						body{"amount": 1, "currency": "EUR", "description": markers[mine]}, "Idempotency-Key", uuid.NewString())
				} else {
					a, err = m.try(t, http.MethodGet, "/v1/payment-intents?limit=5", nil)
				}
				if err != nil || a.status >= 500 || i%3 != 0 && len(a.data()) == 0 {
					t.Errorf("worker %d: %v %d %s", worker, err, a.status, a.body)
					return
				}
				answered.Add(1)
				if bytes.Contains(a.body, []byte(theirs)) {
					foreign.Add(1)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d answers, %d hung up", answered.Load(), hungUp.Load())
	require.Zero(t, foreign.Load())
	require.Greater(t, answered.Load(), int64(1000))
	require.NotZero(t, hungUp.Load())
	require.Zero(t, pooler.warnings.seen.Load())
	require.Zero(t, query[int](t, b, `SELECT count(DISTINCT tenant_id) - count(DISTINCT description) FROM apipay.payment_intents`))
	require.Equal(t, 2, query[int](t, b, `SELECT count(DISTINCT (tenant_id, description)) FROM apipay.payment_intents`))
}

// hangUp sends a request and goes away after the time given, if it is not answered before.
func hangUp(t *testing.T, m merchant, after time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/v1/payment-intents?limit=100", nil)
	if err != nil {
		t.Error(err)
		return false
	}
	request.Header.Set("Authorization", "Bearer "+m.key)
	response, err := client.Do(request)
	if err != nil {
		return true
	}
	_ = response.Body.Close()
	return false
}

// soak multiplies what a soak does more of: SOAK_ROUNDS says how much.
func soak(n int) int {
	if factor, err := strconv.Atoi(os.Getenv("SOAK_ROUNDS")); err == nil && factor > 0 {
		return n * factor
	}
	return n
}
