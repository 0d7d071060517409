//go:build failpoints

package payments_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/api"
	"apipay.io/hub/services/payment-api/internal/auth"
	"apipay.io/hub/services/payment-api/internal/gateway"
	"apipay.io/hub/services/payment-api/internal/gateway/sandbox"
	"apipay.io/hub/services/payment-api/internal/payments"
)

const (
	// envVictim makes the test binary the process that dies: it serves the routes on the database named here.
	envVictim = "PAYMENTS_TEST_VICTIM"
	// envShort gives it leases of seconds.
	envShort = "PAYMENTS_TEST_SHORT"
)

// short are limits with which a pause of seconds is one beyond the lease.
func short(c *payments.Config) {
	c.GatewayTimeout, c.Lease, c.VisibilityDelay = 500*time.Millisecond, 2*time.Second, time.Second
}

// TestVictim is no test: it is the process that [TestCrashMatrix] kills.
func TestVictim(t *testing.T) {
	dsn := os.Getenv(envVictim)
	if dsn == "" {
		t.Skip("run by TestCrashMatrix")
	}
	pool, err := postgres.Open(dsn, postgres.Options{MaxConns: 4})
	require.NoError(t, err)
	cursors, err := httpapi.NewCursors([]byte("0123456789abcdef"))
	require.NoError(t, err)
	config := payments.DefaultConfig()
	if os.Getenv(envShort) != "" {
		short(&config)
	}
	service := payments.New(payments.Deps{
		Pool: pool, Gateways: map[bool]gateway.Gateway{false: sandbox.New(pool)}, Cursors: cursors, Config: config,
	})
	e := httpapi.NewEcho(httpapi.Options{Map: service.MapError})
	e.Use((&testBundle{t: t}).authenticate)
	api.Register(e, moneyOnly{Service: service}, auth.Require)
	e.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	fmt.Println("listening", e.Listener.Addr())
	require.NoError(t, e.Start(""))
}

// victim starts a process that dies at the point, and answers its URL.
func (b *testBundle) victim(point string, environ ...string) (url string, command *exec.Cmd) {
	b.t.Helper()
	command = exec.CommandContext(b.t.Context(), os.Args[0], "-test.run=^TestVictim$")
	command.Env = append(append(os.Environ(), envVictim+"="+b.db.App, "APIPAY_FAILPOINTS="+point), environ...)
	out, err := command.StdoutPipe()
	require.NoError(b.t, err)
	require.NoError(b.t, command.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			return "http://" + address, command
		}
	}
	b.t.Fatal("the victim did not start")
	return "", nil
}

func TestCrashMatrix(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"after_t1", "gateway_accepted", "before_commit", "after_commit"} {
		for _, operation := range []string{"create", "confirm", "cancel", "refund"} {
			if operation == "cancel" && (point == "after_t1" || point == "gateway_accepted") {
				continue // cancel is one transaction and calls nobody
			}
			t.Run(operation+"/"+point, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				me := b.me()
				path, body, pi := me.prepare(operation)
				url, victim := b.victim(point)
				_, err := me.key("k").doAt(t.Context(), url, http.MethodPost, path, []byte(body))
				require.Error(t, err, "the process answers nobody any more")
				require.ErrorContains(t, victim.Wait(), "killed")

				// Somebody else goes on: the same key until it has an answer, time passing meanwhile.
				var last answer
				for range 6 {
					last = me.keyed("k", path, body)
					if last.status < 300 && last.status != http.StatusAccepted {
						break
					}
					require.Contains(t, []int{http.StatusAccepted, http.StatusConflict}, last.status, last.raw)
					b.travel(40 * time.Second)
					require.NoError(t, b.service.ReconcileOnce(t.Context()))
				}
				require.Less(t, last.status, 300, last.raw)
				if pi == "" {
					pi = last.id()
				}
				b.settledOnce(operation, pi, last)
			})
		}
	}
}
