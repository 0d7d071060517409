package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/stack"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var (
	repository = func() string {
		_, file, _, _ := runtime.Caller(0)
		return filepath.Join(filepath.Dir(file), "../../..")
	}()
	build = sync.OnceValue(func() error {
		command := exec.Command("make", "build")
		command.Dir = repository
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("make build: %w\n%s", err, out)
		}
		return nil
	})
)

// hub is one running stack.
type hub struct {
	stack.Info
	dir     string
	environ []string
	owner   *pgxpool.Pool
}

// start brings up a stack of the test's own and takes it down, with its data, at the test's end.
func start(t *testing.T, environ ...string) *hub {
	t.Helper()
	require.NoError(t, build())
	h := &hub{dir: filepath.Join(t.TempDir(), "dev")}
	for _, entry := range os.Environ() {
		// Nothing of the caller's own stack leaks in.
		if !strings.HasPrefix(entry, "APIPAY_") && !strings.HasPrefix(entry, "MAKE") {
			h.environ = append(h.environ, entry)
		}
	}
	h.environ = append(h.environ, "APIPAY_DEV_DIR="+h.dir, fmt.Sprintf("APIPAY_PORT_OFFSET=%d", freeOffset(t)))
	if bin := os.Getenv("APIPAY_POSTGRES_BIN"); bin != "" {
		h.environ = append(h.environ, "APIPAY_POSTGRES_BIN="+bin)
	}
	h.environ = append(h.environ, environ...)
	t.Cleanup(func() {
		if t.Failed() {
			h.showLogs(t)
		}
		h.devstack(t, "clean")
	})
	h.devstack(t, "up", "--detach")
	h.refresh(t)
	var err error
	h.owner, err = pgxpool.New(t.Context(), h.Postgres["owner"])
	require.NoError(t, err)
	t.Cleanup(h.owner.Close)
	return h
}

// devstack runs one command of bin/devstack on this stack.
func (h *hub) devstack(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(repository, "bin/devstack"), args...)
	command.Env = h.environ
	out, err := command.CombinedOutput()
	require.NoError(t, err, "devstack %s: %s", strings.Join(args, " "), out)
}

// refresh reads stack.json again.
func (h *hub) refresh(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(h.dir, "stack.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &h.Info))
}

func (h *hub) showLogs(t *testing.T) {
	t.Helper()
	logs, _ := filepath.Glob(filepath.Join(h.dir, "logs/*.log"))
	for _, path := range logs {
		content, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if len(content) > 4000 {
			content = content[len(content)-4000:]
		}
		t.Logf("== %s\n%s", filepath.Base(path), content)
	}
}

// count answers a query of one number, as the owner of the tables.
func (h *hub) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, h.owner.QueryRow(t.Context(), query, args...).Scan(&n), query)
	return n
}

// eventually waits until the query answers want.
func (h *hub) eventually(t *testing.T, limit time.Duration, want int, query string) {
	t.Helper()
	var last int
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		if last = h.count(t, query); last == want {
			return
		}
		time.Sleep(50 * time.Millisecond) // the distance of two looks at the table
	}
	require.Equal(t, want, last, "after %s: %s", limit, query)
}

// travel lets time pass for every lease and due time, without sleeping: one statement of the owner.
func (h *hub) travel(t *testing.T, by time.Duration) {
	t.Helper()
	const statement = `
		WITH deliveries AS (
		    UPDATE apipay.outbound_webhook_deliveries SET next_attempt_at = next_attempt_at - $1::interval, lease_until = lease_until - $1::interval
		    WHERE next_attempt_at IS NOT NULL
		), attempts AS (
		    UPDATE apipay.payment_attempts SET next_check_at = next_check_at - $1::interval, lease_until = lease_until - $1::interval, checker_until = checker_until - $1::interval
		    WHERE finished_at IS NULL
		)
		UPDATE apipay.idempotency_keys SET locked_until = locked_until - $1::interval WHERE locked_until IS NOT NULL`
	for {
		_, err := h.owner.Exec(t.Context(), statement, by)
		// Under traffic, the order in which it locks rows may cross that of others.
		if refusal := (*pgconn.PgError)(nil); errors.As(err, &refusal) && refusal.Code == "40P01" {
			continue
		}
		require.NoError(t, err)
		return
	}
}

// freeOffset finds a port offset that nobody uses.
func freeOffset(t *testing.T) int {
	t.Helper()
	for offset := 3000 + 100*(os.Getpid()%40); offset <= 13000; offset += 100 {
		free := true
		for _, port := range []int{8080, 8081, 8082, 8083, 8084, 8085, 15432, 19092} {
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+offset))
			if err != nil {
				free = false
				break
			}
			_ = listener.Close()
		}
		if free {
			return offset
		}
	}
	t.Fatal("no free port offset")
	return 0
}
