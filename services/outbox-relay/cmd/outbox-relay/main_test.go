package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/config"
	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/services/outbox-relay/internal/relay"
)

const envMain = "OUTBOX_RELAY_TEST_MAIN"

// TestMain is also the service itself, for tests that need it as a process.
func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// process is the service as its operator sees it.
type process struct {
	*exec.Cmd
	output bytes.Buffer
	exited chan error
}

func launch(t *testing.T, env ...string) *process {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	p := &process{Cmd: exec.Command(program), exited: make(chan error, 1)}
	p.Env = append([]string{envMain + "=1", "PATH=" + os.Getenv("PATH"), "APIPAY_OPS_ADDR=127.0.0.1:0"}, env...)
	p.Stdout, p.Stderr = &p.output, &p.output
	require.NoError(t, p.Start())
	go func() { p.exited <- p.Wait() }()
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// refuse waits for the process to end by itself and answers its last line.
func (p *process) refuse(t *testing.T) string {
	t.Helper()
	select {
	case err := <-p.exited:
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 1, exit.ExitCode())
	case <-time.After(15 * time.Second):
		t.Fatal("it does not end")
	}
	lines := strings.Split(strings.TrimSpace(p.output.String()), "\n")
	return lines[len(lines)-1]
}

func freeAddr(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("RefusesWithoutDSN", func(t *testing.T) {
		t.Parallel()
		line := launch(t, "APIPAY_KAFKA_BROKERS=127.0.0.1:1").refuse(t)
		require.Equal(t, "outbox-relay: APIPAY_DATABASE_URL is not set", line)
	})

	t.Run("RefusesUnknownSetting", func(t *testing.T) {
		t.Parallel()
		line := launch(t, "APIPAY_KAFKA_BROKERS=127.0.0.1:1", "APIPAY_DATABASE_URL=postgres://h/d", "APIPAY_OUTBOX_BACH=1").refuse(t)
		require.Contains(t, line, "APIPAY_OUTBOX_BACH")
		require.Contains(t, line, "APIPAY_OUTBOX_BATCH")
	})

	t.Run("RefusesUnusableBatch", func(t *testing.T) {
		t.Parallel()
		line := launch(t, "APIPAY_KAFKA_BROKERS=127.0.0.1:1", "APIPAY_DATABASE_URL=postgres://h/d", "APIPAY_OUTBOX_BATCH=0").refuse(t)
		require.Contains(t, line, "APIPAY_OUTBOX_BATCH must be between 1 and 10000")
	})

	t.Run("RefusesPortInUse", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		line := launch(t, "APIPAY_KAFKA_BROKERS=127.0.0.1:1", "APIPAY_DATABASE_URL=postgres://h/d", "APIPAY_OPS_ADDR="+listener.Addr().String()).refuse(t)
		require.Contains(t, line, "APIPAY_OPS_ADDR="+listener.Addr().String())
	})

	db := testdb.New(t)
	start := func(t *testing.T, dsn string) string {
		t.Helper()
		return launch(t, "APIPAY_KAFKA_BROKERS=127.0.0.1:1", "APIPAY_DATABASE_URL="+dsn).refuse(t)
	}

	t.Run("RefusesSuperuser", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, start(t, db.Super), "is a superuser")
	})

	t.Run("RefusesOwnerAndApp", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, start(t, db.Owner), "this service runs as apipay_worker")
		require.Contains(t, start(t, db.App), "this service runs as apipay_worker")
	})

	t.Run("RefusesBypassRLS", func(t *testing.T) {
		t.Parallel()
		name := "bypass_" + strings.ReplaceAll(uuid.NewString(), "-", "")
		super := db.Pool(t, db.Super)
		_, err := super.Exec(t.Context(), fmt.Sprintf(`CREATE ROLE %s LOGIN BYPASSRLS PASSWORD 'secret-of-bypass'; GRANT CONNECT ON DATABASE %s TO %s`, name, db.Name, name))
		require.NoError(t, err)
		t.Cleanup(func() {
			_, err := super.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %s; DROP ROLE %s`, name, name))
			require.NoError(t, err)
		})
		dsn, err := url.Parse(db.Worker)
		require.NoError(t, err)
		dsn.User = url.UserPassword(name, "secret-of-bypass")
		line := start(t, dsn.String())
		require.Contains(t, line, "has BYPASSRLS")
		require.NotContains(t, line, "secret-of-bypass")
	})

	t.Run("RefusesPolicyForSelectOnly", func(t *testing.T) {
		t.Parallel()
		db := testdb.New(t)
		_, err := db.Pool(t, db.Owner).Exec(t.Context(), `
			DROP POLICY platform_access ON apipay.outbox_events;
			CREATE POLICY platform_access ON apipay.outbox_events FOR SELECT TO apipay_worker USING (true)`)
		require.NoError(t, err)
		line := start(t, db.Worker)
		require.Contains(t, line, "no permissive policy of this release covers LOCK on apipay.outbox_events")
		require.Contains(t, line, "no permissive policy of this release covers UPDATE on apipay.outbox_events")
	})

	t.Run("RefusesMissingColumnPrivilege", func(t *testing.T) {
		t.Parallel()
		db := testdb.New(t)
		_, err := db.Pool(t, db.Owner).Exec(t.Context(), `REVOKE UPDATE (kafka_offset) ON apipay.outbox_events FROM apipay_worker`)
		require.NoError(t, err)
		require.Contains(t, start(t, db.Worker), "no privilege for UPDATE on apipay.outbox_events")
	})

	t.Run("RefusesOlderAndNewerSchema", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, start(t, testdb.Empty(t).Worker), "migrate up")
		db := testdb.New(t)
		owner := db.Pool(t, db.Owner)
		_, err := owner.Exec(t.Context(), `UPDATE apipay.schema_info SET version = 0`)
		require.NoError(t, err)
		require.Contains(t, start(t, db.Worker), "the schema has version 0")
		_, err = owner.Exec(t.Context(), `UPDATE apipay.schema_info SET version = 1, min_code = 99`)
		require.NoError(t, err)
		require.Contains(t, start(t, db.Worker), "code version 99")
	})
}

// TestService runs the service as a process: it is ready without Kafka's help, publishes, and drains.
func TestService(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	ops := freeAddr(t)
	p := launch(t, "APIPAY_DATABASE_URL="+db.Worker, "APIPAY_KAFKA_BROKERS="+strings.Join(testdb.Brokers(t), ","), "APIPAY_OPS_ADDR="+ops)
	waitFor(t, "readiness", func() bool { return status(ops, "/readyz") == http.StatusOK })
	require.Equal(t, http.StatusOK, status(ops, "/livez"))

	owner := db.Pool(t, db.Owner)
	tenant := uuid.New()
	const insert = `INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload) VALUES ($1, $2, false, $3, $4, 'ping', '{}')`
	eventID := uuid.Must(uuid.NewV7())
	_, err := owner.Exec(t.Context(), insert, eventID, tenant, outbox.TopicWebhooks, outbox.Lane(tenant))
	require.NoError(t, err)
	waitFor(t, "publication", func() bool {
		var published bool
		const query = `SELECT published_at IS NOT NULL FROM apipay.outbox_events WHERE id = $1`
		require.NoError(t, owner.QueryRow(t.Context(), query, eventID).Scan(&published))
		return published
	})
	require.Equal(t, http.StatusOK, status(ops, "/metrics"))
	require.Contains(t, body(t, ops, "/metrics"), `apipay_outbox_oldest_pending_seconds{topic="apipay.audit.v1"} 0`)
	require.Contains(t, body(t, ops, "/metrics"), `apipay_outbox_published_total{topic="apipay.outbound-webhooks.v1"} 1`)

	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.exited:
		require.NoError(t, err, p.output.String())
	case <-time.After(15 * time.Second):
		t.Fatal("it does not drain")
	}
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "no %s", what)
	}
}

var client = http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func status(addr, path string) int {
	response, err := client.Get("http://" + addr + path)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}

func body(t *testing.T, addr, path string) string {
	t.Helper()
	response, err := client.Get("http://" + addr + path)
	require.NoError(t, err)
	defer response.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(response.Body)
	require.NoError(t, err)
	return text.String()
}

func TestConfig(t *testing.T) {
	t.Parallel()
	published := map[string][]string{}
	for _, v := range config.Variables {
		published[v.Name] = v.Services
	}
	for _, name := range config.Names(relay.Config{}) {
		require.Contains(t, published[name], service, name)
	}
}
