package payments_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/rig"
	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/gateway"
)

// ownPostgres is a server of the test's own, which it may kill and freeze.
func ownPostgres(t *testing.T) (*rig.Process, *testdb.DB) {
	t.Helper()
	own, err := rig.New(t.Context(), rig.Options{NoBroker: true, NoProxy: true})
	require.NoError(t, err)
	t.Cleanup(own.Close)
	db, err := own.NewDatabase(t.Context())
	require.NoError(t, err)
	return own.Postgres, &testdb.DB{Owner: db.Owner, App: db.App, Worker: db.Worker, Super: db.Super}
}

// signalAll signals the server and each process that it has started: they are no process group.
func signalAll(t *testing.T, server *rig.Process, signal syscall.Signal) {
	t.Helper()
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", server.PID()))
	require.NoError(t, err)
	for _, word := range strings.Fields(string(list)) {
		pid, err := strconv.Atoi(word)
		require.NoError(t, err)
		_ = syscall.Kill(pid, signal) // one that has just ended is as good
	}
	server.Signal(signal)
}

// TestDatabaseGoneAtT2 takes a real Postgres away when the gateway has answered and nothing of it is written. Nobody
// reconciles, and the leases last: the process itself must bring its answers home once the server is back.
func TestDatabaseGoneAtT2(t *testing.T) {
	t.Parallel()
	faults := map[string]struct {
		leave, back func(*testing.T, *rig.Process)
	}{
		"Killed": {
			func(_ *testing.T, server *rig.Process) { server.Kill() },
			func(t *testing.T, server *rig.Process) { require.NoError(t, server.Start(t.Context())) },
		},
		"Frozen": {
			func(t *testing.T, server *rig.Process) { signalAll(t, server, syscall.SIGSTOP) },
			func(t *testing.T, server *rig.Process) { signalAll(t, server, syscall.SIGCONT) },
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, db := ownPostgres(t)
			b := newBundleOn(t, db)
			var gw *holding
			service, replica := b.serve(appPool(t, db, 8), withGateway(func(inner gateway.Gateway) gateway.Gateway {
				gw = newHolding(inner)
				return heldRefusing{gw, "pm_card_insufficient_funds"}
			}))
			service.SetPatience(time.Second)
			me := b.me()

			type request struct {
				operation, key, path, body, pi string
				now, finally                   int
				answered                       chan answer
			}
			create := `{"amount":1000,"currency":"EUR","confirm":true,"payment_method":"`
			confirmed, declined, refunded, unsent := me.created("pm_card_visa"), me.created("pm_card_declined"),
				me.paid("1000", "pm_card_visa"), me.created("pm_card_insufficient_funds")
			requests := []*request{
				{operation: "create", path: intents, body: create + `pm_card_visa"}`, now: 500, finally: 201},
				{operation: "confirm", path: confirmPath(confirmed), pi: confirmed, now: 500, finally: 200},
				{operation: "decline", path: confirmPath(declined), pi: declined, now: 500, finally: 402},
				{operation: "refund", path: refundPath(refunded), pi: refunded, now: 500, finally: 201},
				{operation: "not sent", path: confirmPath(unsent), pi: unsent, now: 503},
			}
			for _, r := range requests {
				r.key, r.answered = "key-"+strings.ReplaceAll(r.operation, " ", "-"), make(chan answer, 1)
				go func() {
					a, _ := me.at(replica).key(r.key).do(context.Background(), http.MethodPost, r.path, []byte(r.body))
					r.answered <- a
				}()
			}
			for range requests {
				<-gw.arrived
			}
			fault.leave(t, server)
			close(gw.letGo)
			for _, r := range requests {
				a := <-r.answered
				require.Equal(t, r.now, a.status, "%s: %s", r.operation, a.raw)
				require.NotEmpty(t, a.str("payment_intent"), a.raw)
				if r.operation == "not sent" {
					a.is(503, "gateway_unavailable")
					require.NotEmpty(t, a.header.Get("Retry-After"))
				}
				r.pi = a.str("payment_intent")
			}
			fault.back(t, server)
			back := time.Now()
			b.until(func() bool {
				return b.count(`SELECT count(*) FROM apipay.payment_attempts WHERE status IN ('started', 'unknown')`) == 0
			}, "the gateway's answers are not written")
			require.Less(t, time.Since(back), 10*time.Second)
			for _, r := range requests {
				if r.finally == 0 {
					require.Equal(t, "requires_confirmation", me.intent(r.pi).str("status"))
					require.Zero(t, b.count(`SELECT count(*) FROM apipay.idempotency_keys WHERE key = $1`, r.key))
					continue
				}
				a := me.keyed(r.key, r.path, r.body)
				require.Equal(t, r.finally, a.status, a.raw)
				require.Equal(t, "true", a.header.Get("Idempotent-Replayed"), r.operation)
				if r.operation != "decline" {
					require.Equal(t, 1, b.charges(r.pi))
				}
			}
			require.EqualValues(t, 1000, me.intent(refunded).num("amount_refunded"))
			require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.sandbox_charges WHERE kind = 'refund'`))
			b.contract()
		})
	}
}

// heldRefusing is a gateway that cannot be reached with one payment method, as late as the others answer.
type heldRefusing struct {
	*holding
	method string
}

func (g heldRefusing) Charge(ctx context.Context, a gateway.Attempt) (gateway.Result, error) {
	if a.PaymentMethod == g.method {
		g.arrived <- struct{}{}
		<-g.letGo
		return gateway.Result{}, gateway.ErrNotExecuted
	}
	return g.holding.Charge(ctx, a)
}

// TestDatabaseGoneAtT1 loses the answer to T1's COMMIT together with the database. The client is told that nothing was
// done, and so it is, whether the commit took effect or not; the same key then does it.
func TestDatabaseGoneAtT1(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"BeforeItTookEffect": false, "AfterItTookEffect": true} {
		for _, operation := range []string{"create", "confirm", "retake", "refund"} {
			t.Run(operation+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				cut, dsn := newCutter(t, b.db.App, after)
				pool, err := postgres.Open(dsn, postgres.Options{MaxConns: 4})
				require.NoError(t, err)
				t.Cleanup(pool.Close)
				_, server := b.serve(pool, withSandboxOn(b.pool))
				me := b.me()
				prepared := operation
				if operation == "retake" {
					prepared = "create"
				}
				path, body, pi := me.prepare(prepared)
				if operation == "retake" {
					down := &unreachable{}
					down.down.Store(true)
					_, dead := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway { down.Gateway = inner; return down }))
					pi = me.at(dead).keyed("k", path, body).is(503, "gateway_unavailable").str("payment_intent")
				}
				attempts := b.count(`SELECT count(*) FROM apipay.payment_attempts`)

				nth := int64(1)
				if operation == "retake" {
					nth = 2 // after the look at the key, which is there
				}
				cut.armAndLeave(nth)
				a := me.at(server).keyed("k", path, body).is(503, "service_unavailable")
				require.NotEmpty(t, a.header.Get("Retry-After"))
				took := b.count(`SELECT count(*) FROM apipay.payment_attempts`) - attempts
				require.Equal(t, map[bool]int{false: 0, true: 1}[after], took)
				cut.setDown(false)
				b.until(func() bool {
					return b.count(`SELECT count(*) FROM apipay.payment_attempts WHERE status = 'started'`) == 0 &&
						b.count(`SELECT count(*) FROM apipay.idempotency_keys WHERE locked_until IS NOT NULL`) == 0
				}, "key and attempt stay locked")
				require.Zero(t, b.count(`SELECT count(*) FROM apipay.sandbox_charges WHERE kind = $1`,
					map[bool]string{true: "refund", false: "charge"}[operation == "refund"]))

				last := me.keyed("k", path, body)
				require.Less(t, last.status, 202, last.raw)
				require.Empty(t, last.header.Get("Idempotent-Replayed"))
				if pi == "" {
					pi = last.id()
				}
				b.settledOnce(prepared, pi, last)
			})
		}
	}
}

// TestDrain: the process ends only when what the gateways have answered is written, or its time is over.
func TestDrain(t *testing.T) {
	t.Parallel()
	for name, returns := range map[string]bool{"UntilItIsWritten": true, "ForALimitedTime": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			cut, dsn := newCutter(t, b.db.App, true)
			pool, err := postgres.Open(dsn, postgres.Options{MaxConns: 4})
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			var gw *holding
			service, server := b.serve(pool, withSandboxOn(b.pool), withGateway(func(inner gateway.Gateway) gateway.Gateway {
				gw = newHolding(inner)
				return gw
			}))
			service.SetPatience(100 * time.Millisecond)
			pi := b.me().created("pm_card_visa")
			answered := make(chan answer, 1)
			go func() {
				a, _ := b.me().at(server).key("k").do(context.Background(), http.MethodPost, confirmPath(pi), nil)
				answered <- a
			}()
			<-gw.arrived
			cut.setDown(true)
			close(gw.letGo)
			(<-answered).is(500, "internal_error")

			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			if returns {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), patience)
			}
			defer cancel()
			drained := make(chan struct{})
			go func() { service.Drain(ctx); close(drained) }()
			select {
			case <-drained:
				require.Error(t, ctx.Err(), "nothing was waited for")
			case <-time.After(200 * time.Millisecond):
			}
			cut.setDown(!returns)
			<-drained
			status := b.me().intent(pi).str("status")
			require.Equal(t, map[bool]string{true: "succeeded", false: "processing"}[returns], status)
			cut.setDown(false)
			if returns {
				require.NoError(t, ctx.Err())
				b.me().keyed("k", confirmPath(pi), "").is(200)
			}
		})
	}
}
